# Shared by the programs that bring real engines up for the tests. Sourced, never run.
# Exit codes of those programs: 0 up, 1 failed, 2 wrong use, 77 skipped because something is not installed.

set -Eeuo pipefail
shopt -s inherit_errexit
unset CDPATH
export LC_ALL=C

# say TEXT...: one line on stderr, stdout is for what the caller evaluates.
say() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
}

# die TEXT...: fail with a reason.
die() {
  say "$@"
  exit 1
}

# need PROGRAM...: leave with 77 and the reason when one is missing.
need() {
  local program
  for program in "$@"; do
    if ! command -v "${program}" >/dev/null; then
      say "skipped: ${program} is not installed"
      exit 77
    fi
  done
}

# real_dir DIR: make DIR and print its physical path.
real_dir() {
  mkdir -p -- "$1"
  cd -- "$1"
  pwd -P
}

# program_of PID: the name of a live process, empty for none and for zombies.
program_of() {
  local key value name=
  [[ -r /proc/$1/status ]] || return 0
  while read -r key value _; do
    case ${key} in
      Name:) name=${value} ;;
      State:) [[ ${value} != Z ]] || return 0 ;;
      *) break ;;
    esac
  done 2>/dev/null < <(grep -E '^(Name|State):' "/proc/$1/status" 2>/dev/null || true)
  printf '%s' "${name}"
}

# alive PIDFILE NAME: does the pid in that file belong to a live program of that name?
alive() {
  local pid='' name
  [[ -s $1 ]] || return 1
  read -r pid <"$1" || true
  [[ ${pid} =~ ^[0-9]+$ ]] || return 1
  name=$(program_of "${pid}")
  [[ ${name} == "$2" ]]
}

# end PIDFILE NAME: TERM, ten seconds, KILL; only when the pid still is that program.
end() {
  local pid
  if alive "$1" "$2"; then
    read -r pid <"$1" || true
    kill -TERM "${pid}" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do
      alive "$1" "$2" || break
      sleep 0.1
    done
    kill -KILL "${pid}" 2>/dev/null || true
  fi
  rm -f -- "$1"
}

# free_ports N: N loopback ports that were free a moment ago, outside Ray's default worker range.
free_ports() {
  python3 -I - "$1" <<'PY'
import socket, sys
held, ports = [], []
while len(ports) < int(sys.argv[1]):
    held.append(socket.socket())
    held[-1].bind(("127.0.0.1", 0))
    port = held[-1].getsockname()[1]
    if not 10002 <= port <= 19999:
        ports.append(port)
print(*ports)
PY
}
