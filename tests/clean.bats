#!/usr/bin/env bats
# shellcheck disable=SC2154
# clean-campaign: shows, asks, and removes this campaign's scratch output and nothing else.

load helpers

setup() {
  hermetic_setup
  with_baseline
}

@test "it shows what goes and its size, and needs a yes" {
  bin experiment NAME=y OVERRIDES=value=0.6
  head -c 3000000 /dev/zero >"$(campaign_dir)/y/checkpoints/weights"
  run_bin clean-campaign NAME=y
  assert_refused "make clean-campaign CAMPAIGN=c NAME=y YES=1"
  run_bin clean-campaign
  assert_refused "make clean-campaign CAMPAIGN=c YES=1"
  assert_contains "${output}" "$(campaign_dir)/y "
  assert_contains "${output}" "$(campaign_dir)/baseline "
  test -e "$(campaign_dir)/y/checkpoints/weights"
  run bash -c '"$0/bin/clean-campaign" <<<y' "${ROOT}"
  assert_status 3
  AR_YES=maybe run_bin clean-campaign
  assert_wrong_use YES
}

@test "scratch output goes; ledger, summary, notes, branches, caches and other campaigns stay" {
  bin summarize
  bin plan CAMPAIGN=other CMD=./train.sh METRIC=val_accuracy DIRECTION=max SCRATCH="${scratch}" PREFIX=ar/other
  bin approve YES=1
  bin baseline
  : >"${scratch}/nemo-rl/ubuntu/cache/huggingface/model"
  rows=$(<"$(records)/results.tsv")
  refs=$(git for-each-ref)
  notes=$(cat "${repo}"/session/*/timeline.md)
  run_bin clean-campaign CAMPAIGN=c YES=1
  assert_status 0
  assert_equal "$(find "$(campaign_dir)" -mindepth 1 ! -name .campaign)" ""
  assert_equal "$(<"$(records)/results.tsv")" "${rows}"
  assert_equal "$(git for-each-ref)" "${refs}"
  test -s "$(records)/summary.md"
  assert_contains "$(cat "${repo}"/session/*/timeline.md)" "${notes%%$'\n'*}"
  test -e "${scratch}/nemo-rl/ubuntu/cache/huggingface/model"
  test -e "$(campaign_dir other)/baseline/logs/run.log"
  assert_equal "$(git worktree list --porcelain | grep -cF "$(campaign_dir)/.trees" || true)" 0
  run_bin clean-campaign CAMPAIGN=c YES=1
  assert_status 0
  # The campaign goes on.
  bin experiment CAMPAIGN=c NAME=y OVERRIDES=value=0.6
}

@test "NAME removes one experiment" {
  bin experiment NAME=y OVERRIDES=value=0.6
  bin experiment NAME=y2 OVERRIDES=value=0.7
  run_bin clean-campaign NAME=y YES=1
  assert_status 0
  test ! -e "$(campaign_dir)/y"
  test -e "$(campaign_dir)/y2/logs/run.log"
  for verb in series show-log; do
    run_bin "${verb}" NAME=y
    assert_contains "${stderr}" "$(campaign_dir)/y/logs/run.log is not there"
  done
  run_bin clean-campaign NAME=none YES=1
  assert_contains "${stderr}" "nothing to clean"
}

@test "it refuses while a run is alive" {
  bin experiment NAME=y OVERRIDES='sleep=30.625' DETACH=1
  run_bin clean-campaign YES=1
  assert_refused "make stop NAME=y"
  test -e "$(campaign_dir)/y/logs"
  run_bin clean-campaign NAME=baseline YES=1
  assert_status 0
  bin stop NAME=y
  bin clean-campaign YES=1
}

@test "it refuses uncommitted work in a tree of start, also a single ignored-looking file" {
  run_bin start NAME=y
  echo new >"${output}/new file"
  tree=${output}
  run_bin clean-campaign YES=1
  assert_refused "new file"
  test -e "${tree}/new file"
  rm "${tree}/new file"
  bin clean-campaign YES=1
  test ! -e "${tree}"
}

@test "links in the campaign's directory lead nowhere" {
  mkdir "${base}/precious"
  echo x >"${base}/precious/data"
  ln -s "${base}/precious" "$(campaign_dir)/baseline/checkpoints/link"
  ln -s "${base}/precious/data" "$(campaign_dir)/baseline/artifacts/file"
  bin clean-campaign NAME=baseline YES=1
  test -e "${base}/precious/data"
  ln -s "${base}/precious" "$(campaign_dir)/y"
  run_bin clean-campaign NAME=y YES=1
  assert_refused "$(campaign_dir)/y"
  run_bin clean-campaign YES=1
  assert_refused "$(campaign_dir)/y"
  test -e "${base}/precious/data"
}

@test "a mount inside is refused and its content stays" {
  [[ ${EUID} == 0 ]] || skip "a mount needs root"
  mkdir "${base}/precious"
  echo x >"${base}/precious/data"
  mount --bind "${base}/precious" "$(campaign_dir)/baseline/checkpoints" 2>/dev/null || skip "nothing can be mounted here"
  run_bin clean-campaign YES=1
  umount "$(campaign_dir)/baseline/checkpoints"
  assert_refused mounted
  test -e "${base}/precious/data"
  test -e "$(campaign_dir)/baseline/logs/run.log"
}

@test "a scratch that is another repository's, or has lost its marker, is refused" {
  printf '%s\n' /another/repository c 1 >"$(campaign_dir)/.campaign"
  run_bin clean-campaign YES=1
  assert_refused /another/repository
  rm "$(campaign_dir)/.campaign"
  run_bin clean-campaign YES=1
  assert_refused marker
  test -e "$(campaign_dir)/baseline/logs/run.log"
}

@test "a scratch disk that was wiped is no obstacle, for cleaning and for going on" {
  rm -rf "${scratch:?}/nemo-rl"
  run_bin clean-campaign YES=1
  assert_status 0
  assert_contains "${stderr}" "nothing to clean"
  bin experiment NAME=y OVERRIDES=value=0.6
  assert_equal "$(field y status)" keep
}
