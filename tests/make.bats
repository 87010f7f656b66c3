#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# make: what is typed arrives byte for byte, unknown knobs stop the call, the lists agree.

load helpers

# A copy whose core only records its environment: what crossed over can be compared.
recording_copy() {
  copy=${base}/copy
  copy_checkout "${copy}"
  mkdir -p -- "${copy}/.venv/bin"
  printf '#!/bin/sh\nexec env -0 >"%s"\n' '${DUMP}' >"${copy}/.venv/bin/python"
  chmod +x "${copy}/.venv/bin/python"
  : >"${copy}/.venv/.autoresearch-ready"
  export DUMP=${base}/dump
}

# load_recorded: what arrived, in the map `arrived`.
load_recorded() {
  local pair
  declare -gA arrived=()
  while IFS= read -r -d '' pair; do
    arrived[${pair%%=*}]=${pair#*=}
  done <"${DUMP}"
}

# recorded KEY: the value that arrived and a full stop; `(unset).` where none did.
recorded() {
  load_recorded
  printf '%s.' "${arrived[$1]-(unset)}"
}

# The knobs of a program, from its header.
knobs_of() {
  sed -n 's/^#   \([A-Z][A-Z0-9_]*\)\(=.*\)\{0,1\}\( .*\)\{0,1\}$/\1/p' "$1"
}

target_of() {
  case ${1##*/} in
    show-env) printf env ;;
    show-log) printf tail ;;
    run-tests) printf test ;;
    run-checks) printf check ;;
    *) printf '%s' "${1##*/}" ;;
  esac
}

setup() {
  hermetic_setup
}

# Passes HOSTILE through every knob of every verb that reaches the core; $1 is make or bin.
pass_through_all() {
  local program knob
  local -a knobs words
  recording_copy
  make_repo
  export AR_REPO=${repo} # for a verb without the knob REPO
  for program in "${copy}"/bin/*; do
    grep -qE '^  (run|launch)_verb ' "${program}" || continue
    mapfile -t knobs < <(knobs_of "${program}")
    words=()
    for knob in "${knobs[@]}"; do
      if [[ ${knob} == REPO ]]; then words+=("REPO=${repo}"); else words+=("${knob}=${HOSTILE}${knob}${HOSTILE}"); fi
    done
    : >"${DUMP}"
    if [[ $1 == make ]]; then
      make -s -C "${copy}" "$(target_of "${program}")" "${words[@]}"
    else
      "${program}" "${words[@]}"
    fi
    load_recorded
    for knob in "${knobs[@]}"; do
      if [[ ${knob} == REPO ]]; then
        assert_equal "${arrived[AR_REPO]}" "${repo}"
      else
        assert_equal "${arrived["AR_${knob}"]-(unset)}" "${HOSTILE}${knob}${HOSTILE}"
      fi
      assert_equal "${arrived[${knob}]-(unset)}" "(unset)"
    done
  done
  assert_equal "$(find "${base}" "${ROOT}" -maxdepth 3 -name pwned)" ""
}

@test "hostile values arrive byte for byte through every knob of make" {
  pass_through_all make
}

@test "hostile values arrive byte for byte through every knob of bin" {
  pass_through_all bin
}

@test "an empty value stays different from none" {
  recording_copy
  make_repo
  make -s -C "${copy}" status CAMPAIGN= REPO="${repo}"
  assert_equal "$(recorded AR_CAMPAIGN)" "."
  make -s -C "${copy}" status REPO="${repo}"
  assert_equal "$(recorded AR_CAMPAIGN)" "(unset)."
}

@test "the environment gives a knob only as AR_NAME, and make does not swallow it" {
  recording_copy
  make_repo
  NAME=theirs PREFIX=theirs CMD=theirs AR_NAME="${HOSTILE}" make -s -C "${copy}" experiment REPO="${repo}"
  assert_equal "$(recorded AR_NAME)" "${HOSTILE}."
  assert_equal "$(recorded AR_PREFIX)" "(unset)."
  assert_equal "$(recorded AR_CMD)" "(unset)."
  assert_equal "$(recorded NAME)" "theirs."
}

@test "make's own variables do not reach the core" {
  recording_copy
  make_repo
  make -s -C "${copy}" -j2 status REPO="${repo}"
  for key in MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES AR_GIVEN; do
    assert_equal "$(recorded "${key}")" "(unset)."
  done
}

@test "an unknown variable stops make before anything is expanded" {
  recording_copy
  for word in NMAE=x 'OTHER=$(shell touch pwned)' 'name=x' 'PATH=/x'; do
    run --separate-stderr make -s -C "${copy}" status "${word}"
    assert_status 2
    assert_contains "${stderr}" "unknown knob '${word%%=*}'"
  done
  run ! test -e "${copy}/pwned"
  run ! test -e "${DUMP}"
}

@test "a knob of another verb stops the call, through make and bin" {
  recording_copy
  run --separate-stderr make -s -C "${copy}" status NAME=x
  assert_status 2
  assert_contains "${stderr}" "unknown knob 'NAME'"
  run --separate-stderr "${copy}/bin/status" NAME=x
  assert_wrong_use "unknown knob 'NAME'"
  run ! test -e "${DUMP}"
}

@test "KNOBS in the Makefile is the union of the headers" {
  typed=$(sed -n '/^KNOBS := /,/[^\\]$/p' "${ROOT}/Makefile" | sed 's/^KNOBS := //; s/\\$//' | tr -s ' ' '\n' | sed '/^$/d')
  union=$(for program in "${ROOT}"/bin/*; do knobs_of "${program}"; done | LC_ALL=C sort -u)
  assert_equal "$(LC_ALL=C sort <<<"${typed}")" "${union}"
}

@test "help lists every program under the name of its target, and every target has a program" {
  run_bin help
  assert_status 0
  for program in "${ROOT}"/bin/*; do
    assert_contains "${output}" $'\n'"  $(printf '%-16s' "$(target_of "${program}")") "
  done
  assert_equal "$(make -s -C "${ROOT}")" "${output}"
  assert_equal "$(grep -c '^  ' <<<"${output}")" "$(find "${ROOT}/bin" -type f | wc -l)"
  while read -r target; do
    run --separate-stderr make -n -s -C "${ROOT}" "${target}"
    assert_status 0
    test -x "${ROOT}/${output#@}"
  done < <(sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p' <<<"${output}")
}

@test "a recipe is one line that calls bin and holds no value" {
  run grep -n $'^\t' "${ROOT}/Makefile"
  assert_status 1
  run grep -nE '^[a-z$()A-Z -]+:.*;' "${ROOT}/Makefile"
  local form='^[0-9]+:[^:]+: ; @bin/[-a-z$@]+$'
  while read -r line; do
    [[ ${line} =~ ${form} ]]
  done <<<"${output}"
  run grep -nE 'include|ONESHELL|\$\(MAKE\)' "${ROOT}/Makefile"
  assert_status 1
}

@test "output for programs is clean under make -C, and a failure is make's 2" {
  make_repo
  plan_campaign
  run --separate-stderr make --no-print-directory -C "${ROOT}" status JSON=1 REPO="${repo}"
  assert_status 0
  "${ROOT}/.venv/bin/python" -I -c 'import json, sys; json.loads(sys.argv[1])' "${output}"
  run --separate-stderr make --no-print-directory -C "${ROOT}" experiment NAME=y REPO="${repo}"
  assert_status 2
  assert_contains "${stderr}" "make baseline"
}

@test "make works in a checkout whose path holds blanks and quotes, from anywhere, through a link" {
  copy_checkout "${base}/copy"
  give_venv "${base}/copy"
  make_repo
  bin plan CAMPAIGN=c CMD=./train.sh METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}"
  cd /
  make -s -C "${base}/copy" approve YES=1
  run --separate-stderr make -s -C "${base}/copy" status
  assert_status 0
  assert_contains "${output}" "campaign   c"
  ln -s -- "${base}/copy/bin/status" "${base}/my status"
  run --separate-stderr "${base}/my status"
  assert_status 0
  assert_contains "${output}" "campaign   c"
}

@test "a set-up that fails leaves the packages of before" {
  copy_checkout "${base}/copy"
  give_venv "${base}/copy"
  mkdir "${base}/bin"
  printf '#!/bin/sh\ncase $1 in venv) mkdir -p "${0%%/*}/../copy/.venv/bin" ;; *) exit 1 ;; esac\n' >"${base}/bin/uv"
  chmod +x "${base}/bin/uv"
  touch -d tomorrow "${base}/copy/pyproject.toml"
  PATH="${base}/bin:${PATH}" run --separate-stderr "${base}/copy/bin/setup"
  assert_status 1
  assert_contains "${stderr}" "check the network"
  test ! -e "${base}/copy/.venv.aside"
  touch -d yesterday "${base}/copy/pyproject.toml"
  run --separate-stderr "${base}/copy/bin/metric" LOG=/dev/null METRIC=x
  assert_status 3
}

@test "the demo shows its calls as they can be typed" {
  local line verb
  recording_copy
  mkdir -p "${base}/demo/ideas"
  echo a=1 >"${base}/demo/ideas/hotter-sampling.overrides"
  : >"${copy}/.venv/.autoresearch-demo-ready"
  printf '#!/bin/sh\nprintf "%%s\\n" "${DEMO}"\n' >"${copy}/.venv/bin/python"
  export DEMO=${base}/demo
  for verb in plan approve baseline experiment summarize; do
    printf '#!/bin/sh\nprintf "%%s\\0" "$@" >>"${DUMP}"\n' >"${copy}/bin/${verb}"
  done
  run --separate-stderr "${copy}/bin/demo"
  assert_status 0
  mv "${DUMP}" "${base}/called"
  cd "${copy}"
  while IFS= read -r line; do
    [[ ${line} != '$ bin/'* ]] || eval "${line#\$ }"
  done <<<"${output}"
  cmp "${DUMP}" "${base}/called"
}
