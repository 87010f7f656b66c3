#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# Every verb works with cron's environment, from /, by absolute path or through make -C, without REPO.

load helpers

setup() {
  hermetic_setup
  make_repo
  plan_campaign
  cd /
}

# as_cron WORDS...: a command with what cron gives it.
as_cron() {
  run --separate-stderr env -i "HOME=${home}" PATH=/usr/bin:/bin "AUTORESEARCH_DEVICES=${AUTORESEARCH_DEVICES}" "$@"
}

@test "the whole loop with cron's environment" {
  as_cron "${ROOT}/bin/baseline"
  assert_status 0
  assert_contains "${output}" "stop condition not yet met: 1/20 attempted"
  as_cron "${ROOT}/bin/experiment" NAME=y OVERRIDES=value=0.6
  assert_status 0
  as_cron make --no-print-directory -C "${ROOT}" experiment NAME=z OVERRIDES=value=0.7
  assert_status 0
  for verb in status summarize check-disk doctor show-env resume ledger; do
    words=()
    [[ ${verb} != check-disk ]] || words=(MIN_FREE_GB=0 MIN_FREE_PCT=0)
    as_cron "${ROOT}/bin/${verb}" "${words[@]}"
    assert_status 0
    assert_lacks "${output}${stderr}" $'\e'
  done
  assert_equal "$(count_rows)" 3
  as_cron "${ROOT}/bin/clean-campaign"
  assert_refused YES=1
  as_cron "${ROOT}/bin/clean-campaign" YES=1
  assert_status 0
}

@test "a program that cron's PATH does not have is named before anything runs" {
  mkdir -- "${home}/tools"
  ln -s /bin/sh "${home}/tools/my shell"
  PATH="${home}/tools:${PATH}" bin plan CAMPAIGN=tools CMD="'my shell' train.sh {overrides}" METRIC=val_accuracy \
    DIRECTION=max SCRATCH="${scratch}" REPO="${repo}"
  bin approve YES=1
  as_cron "${ROOT}/bin/baseline"
  assert_refused "there is no program 'my shell' on PATH (/usr/bin:/bin): "
  as_cron "${ROOT}/bin/doctor"
  assert_contains "${output}" "FAIL  CMD: there is no program 'my shell'"
  [[ ! -e $(campaign_dir tools)/baseline && ! -e $(records tools)/results.tsv ]]
  assert_equal "$(git -C "${repo}" branch --list '*tools*')" ""
}

@test "NAME, PREFIX and CMD that others have set change nothing" {
  as_cron NAME=wsl PREFIX=/opt/conda CMD='rm -rf /' CAMPAIGN=theirs REPO=/nonexistent STOP=now YES=1 "${ROOT}/bin/baseline"
  assert_status 0
  as_cron NAME=wsl PREFIX=/opt/conda CMD='rm -rf /' make --no-print-directory -C "${ROOT}" experiment NAME=y OVERRIDES=value=0.6
  assert_status 0
  assert_equal "$(field y status)" keep
  as_cron YES=1 "${ROOT}/bin/clean-campaign"
  assert_refused YES=1
}

@test "without HOME it is said, and nothing is made at /" {
  run --separate-stderr env -i PATH=/usr/bin:/bin "${ROOT}/bin/status"
  [[ ${status} == 3 || ${status} == 2 ]]
  assert_contains "${stderr}" "autoresearch: "
  run --separate-stderr env -i PATH=/usr/bin:/bin "${ROOT}/bin/status" REPO="${repo}"
  assert_status 0
}

@test "a closed stdin, stdout or stderr is no obstacle" {
  as_cron bash -c '"$0/bin/baseline" <&- >/dev/null 2>&1' "${ROOT}"
  assert_status 0
  as_cron bash -c '"$0/bin/experiment" NAME=y OVERRIDES=value=0.6 >&- 2>&- <&-' "${ROOT}"
  assert_equal "$(field y status)" keep
  as_cron bash -c 'set -o pipefail; "$0/bin/summarize" | head -n 1' "${ROOT}"
  assert_status 0
}

@test "another language and its decimal comma change nothing" {
  as_cron LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 "${ROOT}/bin/baseline"
  assert_status 0
  as_cron LANGUAGE=tr LC_ALL=tr_TR.UTF-8 "${ROOT}/bin/experiment" NAME=index OVERRIDES=value=0.6
  assert_status 0
  assert_equal "$(field index metric_value) $(field index parent_metric)" "0.6 0.5"
}

@test "modules and settings of the caller's directory are not loaded" {
  mkdir -p "${base}/theirs"
  for module in json csv tabulate autoresearch sitecustomize dotenv; do
    printf 'raise SystemExit("theirs was imported")\n' >"${base}/theirs/${module}.py"
  done
  cd -- "${base}/theirs"
  as_cron PYTHONPATH="${base}/theirs" PYTHONSTARTUP="${base}/theirs/json.py" PYTHONHOME=/nonexistent CDPATH=/tmp \
    "${ROOT}/bin/baseline" REPO="${repo}"
  assert_status 0
  as_cron "${ROOT}/bin/summarize" REPO="${repo}"
  assert_status 0
}
