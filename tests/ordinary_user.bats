#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# The whole loop as an ordinary user, without a name in the password file, on a checkout of their own.

load helpers

ID=54321

setup() {
  [[ ${EUID} == 0 ]] || skip "changing to another account needs root"
  type -P setpriv >/dev/null || skip "setpriv (util-linux) is not installed"
  hermetic_setup
  # bats keeps its own directories to root.
  base=$(mktemp -d $'/tmp/it\'s a "user" é.XXXXXX')
  scratch=${base}/scratch home=${base}/home copy=${base}/autoresearch
  mkdir -p -- "${scratch}" "${home}" "${base}/tmp"
  python=$(python_for_all)
  [[ -n ${python} ]] || skip "no Python 3.11 that another account may start"
  copy_checkout "${copy}"
  copy_venv
  export HOME=${home} GIT_CONFIG_GLOBAL=${home}/.gitconfig
  git config --global user.name "An Ordinary User"
  git config --global user.email user@example.org
  git config --global init.defaultBranch main
  make_repo
  chown -R "${ID}:${ID}" "${base}"
}

teardown() {
  if [[ ${base-} == /tmp/it* ]]; then rm -rf -- "${base:?}"; fi
}

as_user() {
  setpriv --reuid="${ID}" --regid="${ID}" --clear-groups env -i "HOME=${home}" PATH=/usr/local/bin:/usr/bin:/bin \
    "TMPDIR=${base}/tmp" "AUTORESEARCH_DEVICES=${base}/devices" "$@"
}

python_for_all() {
  local candidate
  for candidate in "$(readlink -f -- "${ROOT}/.venv/bin/python")" /usr/bin/python3 /usr/local/bin/python3; do
    if as_user "${candidate}" -I -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s' "${candidate}"
      return 0
    fi
  done
}

# A .venv with what the core imports; the packages of ours may lie where another account cannot read.
copy_venv() {
  local site from name
  "${python}" -m venv --without-pip -- "${copy}/.venv"
  site=$("${copy}/.venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  from=$("${ROOT}/.venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  for name in dotenv tabulate tomli_w git gitdb smmap sh.py omegaconf hydra antlr4 yaml; do
    if [[ -e ${from}/${name} ]]; then cp -r -- "${from}/${name}" "${site}/"; fi
  done
  printf '%s\n' "${copy}" >"${site}/autoresearch.pth"
  : >"${copy}/.venv/.autoresearch-ready"
}

@test "plan, baseline, experiments, summary and cleaning as an ordinary user" {
  user_bin() {
    run --separate-stderr as_user "${copy}/bin/$1" "${@:2}"
  }
  user_bin plan CAMPAIGN=c CMD='./train.sh {overrides}' METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}" \
    STOP='20 experiments'
  assert_status 0
  user_bin approve YES=1
  assert_status 0
  user_bin baseline
  assert_status 0
  run as_user make -s -C "${copy}" experiment NAME=y OVERRIDES=value=0.6
  assert_status 0
  user_bin experiment NAME=boom OVERRIDES=exit=3
  assert_status 4
  user_bin start NAME=z PARENT=baseline
  assert_status 0
  as_user bash -c 'echo 0.7 >"$1/value"' bash "${output}"
  user_bin experiment NAME=z
  assert_status 0
  assert_equal "$(field y status) $(field boom status) $(field z metric_value)" "keep crash 0.7"
  user_bin experiment NAME=slow OVERRIDES='sleep=30.875' DETACH=1
  assert_status 0
  user_bin stop NAME=slow
  assert_status 0
  for verb in status summarize doctor ledger resume; do
    user_bin "${verb}"
    assert_status 0
  done
  assert_equal "$(find "${base}" ! -user "${ID}")" ""
  assert_equal "$(find "${repo}" -perm /022 ! -type l)" ""
  # What a run made read-only goes all the same.
  as_user chmod -R a-w "$(campaign_dir)/y"
  user_bin release NAME=z
  user_bin clean-campaign YES=1
  assert_status 0
  assert_equal "$(find "$(campaign_dir)" -mindepth 1 ! -name .campaign)" ""
}

@test "another account's repository is refused with the way to do it, from either side" {
  chown -R 0:0 "${repo}"
  run --separate-stderr as_user "${copy}/bin/plan" CAMPAIGN=c CMD=./train.sh METRIC=m DIRECTION=max SCRATCH="${scratch}" REPO="${repo}"
  assert_refused "belongs to another user"
  chown -R "${ID}:${ID}" "${repo}"
  run_bin plan CAMPAIGN=c CMD=./train.sh METRIC=m DIRECTION=max SCRATCH="${scratch}" REPO="${repo}"
  assert_refused "sudo -u"
  test ! -e "${repo}/reports"
}
