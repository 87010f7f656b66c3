#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# The README's line for tmux and its line for cron, with the real programs.

load helpers

# readme_block NAME: the lines of the README's block that is marked `runs: NAME`.
readme_block() {
  awk -v mark="<!-- runs: $1 -->" '
    $0 == mark { found = 1; next }
    found && /^```/ { if (inside) exit; inside = 1; next }
    found && inside { print }
  ' "${ROOT}/README.md"
}

setup() {
  hermetic_setup
  # As a reader of the README has it.
  ln -s -- "${ROOT}" "${home}/autoresearch"
}

teardown() {
  if [[ -n ${socket-} ]]; then tmux -S "${socket}" kill-server 2>/dev/null || true; fi
  if [[ -n ${daemon-} ]]; then kill -- "-${daemon}" 2>/dev/null || true; fi
  if [[ -n ${short-} ]]; then rm -rf -- "${short:?}"; fi
}

has_row() {
  [[ -e $(records)/results.tsv ]] && grep -qE "$1" "$(records)/results.tsv"
}

shows_running() {
  run_bin status
  [[ ${output} == *"running    $1 "* ]]
}

@test "a tmux session runs an experiment, which outlives the session" {
  type -P tmux >/dev/null || skip "tmux is not installed"
  with_baseline
  line=$(readme_block tmux | grep '^tmux ')
  [[ ${line} == *'make -C "$HOME/autoresearch" experiment NAME='* ]]
  short=$(mktemp -d /tmp/ar-tmux.XXXXXX) # a socket's path is limited to 107 bytes
  socket=${short}/s
  # Without a config of the machine, on a server of its own; otherwise as it is written.
  tmux() { command tmux -f /dev/null -S "${socket}" "$@"; }
  OVERRIDES_OF_README=$(sed -n "s/.*OVERRIDES='\([^']*\)'.*/\1/p" <<<"${line}")
  eval "${line/OVERRIDES=\'${OVERRIDES_OF_README}\'/OVERRIDES=\'wait value=0.6\'}" 3>&-
  name=$(sed -n 's/.* NAME=\([a-z0-9-]*\).*/\1/p' <<<"${line}")
  until_true 20 shows_running "${name}"
  tmux kill-server
  socket=
  touch "${HOME}/go"
  until_true 20 has_row $'\tkeep\texperiment: '"${name}"
  assert_equal "$(field "${name}" metric_value) $(field "${name}" end_cause)" "0.6 ok"
}

@test "a crontab line runs an experiment in the night" {
  [[ ${EUID} == 0 ]] || skip "a cron daemon of its own needs root"
  type -P cron >/dev/null || skip "cron is not installed"
  unshare -m true 2>/dev/null || skip "no mount namespace can be made here"
  with_baseline
  block=$(readme_block crontab)
  assert_contains "${block}" '"$HOME/autoresearch/bin/experiment" NAME='
  # What the account has elsewhere: its home, git's settings. HOME holds a blank; the format of a crontab has no escapes.
  short=$(mktemp -d '/tmp/ar cron.XXXXXX')
  cp -a -- "${home}/." "${short}/"
  {
    printf 'HOME=%s\nUSER=ubuntu\nAUTORESEARCH_DEVICES=%s/devices\n' "${short}" "${short}"
    sed -E 's/^[0-9]+ [0-9]+ \* \* \* /* * * * * /' <<<"${block}"
  } >"${short}/crontab"
  # The clock of the daemon alone goes faster, where that can be had: a minute in a second.
  faster=()
  if type -P faketime >/dev/null; then faster=(faketime -f '+0 x40'); fi
  # A group of its own, since faketime stays as the parent of what it starts.
  setsid unshare -m bash -c '
    set -e
    mount -t tmpfs tmpfs /var/spool/cron
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /dev/shm # faketime stumbles over what one that was killed under the same number has left there
    mkdir -m 1730 /var/spool/cron/crontabs
    install -m 600 "$1" /var/spool/cron/crontabs/root
    exec "${@:2}" cron -f
  ' bash "${short}/crontab" "${faster[@]}" </dev/null >"${base}/cron.said" 2>&1 3>&- &
  daemon=$!
  until_true 75 has_row $'\tnight-' || {
    cat "${base}/cron.said" "${short}/night.log" >&2
    return 1
  }
  until_true 20 grep -q attempted "${short}/night.log" # the caller's last line comes after the row
  kill -- "-${daemon}"
  daemon=
  assert_equal "$(field "night-$(date +%m%d)" status)" discard
  assert_contains "$(field "night-$(date +%m%d)" command)" "--lr 0.0$(date +%d)"
}
