# Summary: what the bats files share: a hermetic machine, real repositories, a campaign, comparisons.
# Every path holds a blank, quotes, a dollar and a letter that is not ASCII.
# shellcheck shell=bash disable=SC2034,SC2154

bats_require_minimum_version 1.5.0

# A hang ends as a failure; bats reads this after a file is loaded and before its setup.
export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-120}

ROOT=$(cd -P -- "${BATS_TEST_DIRNAME}/.." && pwd -P)
readonly ROOT

# What a caller may type: every character that make, a shell or a parser could take for its own.
HOSTILE=$'a\'b"c $(touch pwned) `touch pwned` $HOME ${HOME} $$ $5 $(NAME) #x ; & | * ? ~ \\n \\ %s %% é\u2028\n second\tline '
readonly HOSTILE

# hermetic_setup: sets base, home, scratch and a clean environment. Call it first in setup().
hermetic_setup() {
  local name
  while IFS= read -r name; do
    case ${name} in
      GIT_* | MAKE* | MFLAGS | AR_* | XDG_* | WANDB_* | HF_* | HUGGING_FACE_* | RAY_* | SLURM_* | CUDA_* | PYTHON* | \
        BREV | NAME | PREFIX | CMD | CDPATH | BASH_ENV | ENV) unset "${name}" ;;
      *) ;;
    esac
  done < <(compgen -e)
  base=${BATS_TEST_TMPDIR}/$'it\'s a "dir" $x é'
  home=${base}/home
  scratch=${base}/scratch
  mkdir -p -- "${home}" "${scratch}" "${base}/tmp"
  export HOME=${home} TMPDIR=${base}/tmp USER=ubuntu TZ=UTC LC_ALL=C.UTF-8
  # The devices of a machine of its own: real runs on this one neither wait for the tests nor hold them up.
  export AUTORESEARCH_DEVICES=${base}/devices
  export GIT_CONFIG_GLOBAL=${home}/.gitconfig GIT_CONFIG_NOSYSTEM=1
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  git config --global user.name "A Researcher"
  git config --global user.email researcher@example.org
  git config --global init.defaultBranch main
}

# make_repo [NAME]: a repository with a tiny training; sets repo and enters it.
# The training prints `val_accuracy: V` with V from the file `value` or a word value=V; exit=N, sleep=N, say=TEXT; `wait` ends
# when there is a file ${HOME}/go, `env` keeps its environment in the artifacts, `leak` prints a secret.
make_repo() {
  repo=${base}/${1:-repo}
  mkdir -p -- "${repo}"
  cd -- "${repo}" || return
  git init -q
  cat >train.sh <<'TRAIN'
#!/bin/sh
value=$(cat value) code=0
for word in "$@"; do
  case ${word} in
    value=*) value=${word#*=} ;;
    exit=*) code=${word#*=} ;;
    sleep=*) sleep "${word#*=}" ;;
    wait) until [ -e "${HOME}/go" ]; do sleep 0.05; done ;;
    say=*) printf '%s\n' "${word#*=}" ;;
    leak) printf 'my key is %s\n' "${WANDB_API_KEY}" ;;
    env) env -0 >"${ARTIFACT_DIR}/env" ;;
  esac
done
printf 'val_accuracy: %s\n' "${value}"
exit "${code}"
TRAIN
  chmod +x train.sh
  printf '0.5\n' >value
  printf 'other\n' >other.txt
  printf '/ignored/\n*.tmp\n' >.gitignore
  git add -A
  git commit -q -m first
}

# run_bin VERB [KNOB=VALUE ...]: bats' run of a program in bin/; stdout in output, stderr in stderr.
run_bin() {
  run --separate-stderr "${ROOT}/bin/$1" "${@:2}"
}

# bin VERB [KNOB=VALUE ...]: the same for what must succeed; nothing is shown unless it fails.
bin() {
  local said status=0
  said=$("${ROOT}/bin/$1" "${@:2}" 2>&1) || status=$?
  if ((status != 0)); then
    printf 'bin/%s gave %s:\n%s\n' "$1" "${status}" "${said}" >&2
    return "${status}"
  fi
}

# plan_campaign [KNOB=VALUE ...]: plans and approves campaign c of the current repository.
plan_campaign() {
  bin plan CAMPAIGN=c CMD='./train.sh {overrides}' METRIC=val_accuracy DIRECTION=max STOP='20 experiments' \
    SCRATCH="${scratch}" SLOTS=64 "$@"
  bin approve YES=1
}

# with_baseline [KNOB=VALUE ...]: a repository, a planned campaign and its baseline.
with_baseline() {
  make_repo
  plan_campaign "$@"
  bin baseline
}

# The records and the scratch directory of a campaign.
records() {
  printf '%s' "${repo}/reports/auto_research/${1:-c}"
}

campaign_dir() {
  printf '%s' "${scratch}/nemo-rl/ubuntu/nemo-rl-auto-research/${1:-c}"
}

# field EXPERIMENT COLUMN [ATTEMPT] [LEDGER]: one field of a row, as it is written.
field() {
  # The escapes of the file stay as they are: the name is no awk variable assignment, and -v would read \n.
  WANTED=$1 COLUMN=$2 ATTEMPT=${3:-1} awk -F'\t' '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["experiment"] == ENVIRON["WANTED"] && $at["attempt"] == ENVIRON["ATTEMPT"] { print $at[ENVIRON["COLUMN"]] }
  ' "${4:-$(records)/results.tsv}"
}

# count_rows [LEDGER]: the rows of a ledger, without its header.
count_rows() {
  tail -n +2 -- "${1:-$(records)/results.tsv}" | wc -l
}

# assert_contains TEXT PART, assert_lacks TEXT PART, assert_equal GOT WANTED: fail with both shown.
assert_contains() {
  if [[ $1 != *"$2"* ]]; then
    printf 'this lacks %q:\n%s\n' "$2" "$1" >&2
    return 1
  fi
}

assert_lacks() {
  if [[ $1 == *"$2"* ]]; then
    printf 'this holds %q:\n%s\n' "$2" "$1" >&2
    return 1
  fi
}

assert_equal() {
  if [[ $1 != "$2" ]]; then
    printf 'got    %q\nwanted %q\n' "$1" "$2" >&2
    return 1
  fi
}

# assert_status WANTED: what the last run gave, with what it said when it is another.
assert_status() {
  if [[ ${status} != "$1" ]]; then
    printf 'gave %s, wanted %s\nstdout: %s\nstderr: %s\n' "${status}" "$1" "${output}" "${stderr-}" >&2
    return 1
  fi
}

# assert_refused WORD: exit 3 with a message of the one form that names WORD and a remedy; no traceback.
assert_refused() {
  assert_status 3
  assert_contains "${stderr}" "autoresearch: "
  assert_contains "${stderr}" "$1"
  assert_lacks "${stderr}" Traceback
}

assert_wrong_use() {
  assert_status 2
  assert_contains "${stderr}" "autoresearch: "
  assert_contains "${stderr}" "$1"
  assert_lacks "${stderr}" Traceback
}

# snapshot_checkout DIR: everything of a checkout that is promised to stay, for a comparison before and after.
# No git command that may refresh the index is run.
snapshot_checkout() (
  cd -- "$1" || exit
  # Our own records lie below reports/auto_research and session, both kept out of git.
  find . -path ./.git -prune -o -path ./reports/auto_research -prune -o -path ./session -prune -o \
    -path ./reports -prune -o ! -path . -printf '%p %y %m %l\n' | LC_ALL=C sort
  find . -path ./.git -prune -o -path ./reports -prune -o -path ./session -prune -o -type f -print0 \
    | LC_ALL=C sort -z | xargs -0 sha256sum --
  cat -- .git/HEAD
  sha256sum -- .git/index .git/config
  find .git -maxdepth 1 -name '*_HEAD' -exec sha256sum {} +
  cat .git/logs/refs/stash 2>/dev/null
  git for-each-ref refs/heads/main refs/heads/user refs/tags refs/stash refs/remotes
  GIT_OPTIONAL_LOCKS=0 git status --porcelain=v2 --ignored --branch | grep -vxE '! (reports|session)/'
)

# until_true SECONDS COMMAND...: polls; fails when it stays false.
until_true() {
  local left=$(($1 * 50))
  shift
  until "$@"; do
    if ((left-- <= 0)); then
      printf 'waited in vain for: %s\n' "$*" >&2
      return 1
    fi
    sleep 0.02
  done
}

# copy_checkout DIR: the files of this checkout that git knows or that are new, without .venv.
copy_checkout() {
  mkdir -p -- "$1"
  (cd -- "${ROOT}" && git ls-files -z --cached --others --exclude-standard -- Makefile bin lib autoresearch \
    pyproject.toml examples \
    | while IFS= read -r -d '' file; do [[ ! -f ${file} ]] || printf '%s\0' "${file}"; done \
    | tar -c --null -T - -f -) | tar -x -C "$1" -f -
}

# give_venv DIR [PYTHON]: a .venv of its own for a copy, with the packages of ours; no network.
give_venv() {
  local site
  "${2:-python3}" -m venv --without-pip -- "$1/.venv"
  site=$("$1/.venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "$1" "$("${ROOT}/.venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    >"${site}/autoresearch.pth"
  : >"$1/.venv/.autoresearch-ready"
}
