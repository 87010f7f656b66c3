# Summary: what every program in bin/ shares: strict mode, its header as help, knobs, the hand-over to the core.
# Sourced first thing by each bin/ program; `root` is the checkout of autoresearch, whatever the caller's directory.
# shellcheck shell=bash

set -Eeuo pipefail
shopt -s inherit_errexit
unset CDPATH

# A daemon may start us with closed descriptors: the next file to be opened would take the place of stdin or stdout.
[[ -e /dev/fd/0 ]] || exec </dev/null
[[ -e /dev/fd/1 ]] || exec >/dev/null
[[ -e /dev/fd/2 ]] || exec 2>/dev/null

here=${BASH_SOURCE[0]%/*}
root=$(cd -P -- "${here}/.." && pwd -P)
readonly root

# shellcheck source=lib/messages.bash
source "${root}/lib/messages.bash"
# shellcheck source=lib/setup.bash
source "${root}/lib/setup.bash"
# shellcheck source=lib/repository.bash
source "${root}/lib/repository.bash"
# shellcheck source=lib/dotenv.bash
source "${root}/lib/dotenv.bash"

# Prints the header of a program (its only help text) without the comment signs.
show_header() {
  local line
  while IFS= read -r line; do
    [[ ${line} == '#!'* ]] && continue
    [[ ${line} == '#'* ]] || break
    line=${line#'#'}
    printf '%s\n' "${line# }"
  done <"$1"
}

# Sets `knobs` to the names listed under "Knobs:" in the header of program $1; the header owns the allow-list.
known_knobs() {
  local line LC_ALL=C
  knobs=()
  while IFS= read -r line; do
    [[ ${line} == '#'* ]] || break
    if [[ ${line} =~ ^'#   '([A-Z][A-Z0-9_]*)(=|' '|$) ]]; then
      knobs+=("${BASH_REMATCH[1]}")
    fi
  done <"$1"
}

is_knob() {
  local known
  for known in "${knobs[@]}"; do
    if [[ ${known} == "$1" ]]; then return 0; fi
  done
  return 1
}

# Reads the words NAME=value of a call into AR_NAME, so that a value stays data whatever it holds.
# Exits for --help (0) and for a word or knob this program does not know (2).
take_knobs() {
  local program=$1 word key
  local -a knobs=()
  shift
  known_knobs "${program}"
  for word in "$@"; do
    case ${word} in
      -h | --help)
        show_header "${program}"
        exit 0
        ;;
      [A-Z]*=*)
        key=${word%%=*}
        is_knob "${key}" || refuse_knob "${program}" "${key}"
        export "AR_${key}=${word#*=}"
        ;;
      *) wrong_use "${program##*/}" "'${word}' is not a knob" "write NAME=value; '${program##*/} --help' lists the knobs" ;;
    esac
  done
  # make has checked against the knobs of all verbs; this verb may still not know one that was typed.
  for key in ${AR_GIVEN-}; do
    is_knob "${key}" || refuse_knob "${program}" "${key}"
  done
  unset AR_GIVEN
}

refuse_knob() {
  local program=${1##*/}
  wrong_use "${program}" "unknown knob '$2'" "it takes: ${knobs[*]:-no knobs}"
}

# Hands over to the Python core. -I keeps the caller's directory and PYTHONPATH out of the import path.
core() {
  # A make inside a training would take over our own command line from these (seen: NAME=exp1 as its override).
  unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
  exec "${root}/.venv/bin/python" -I -m autoresearch "$@"
}

# The steps of a verb that looks at a repository: knobs, set-up, repository, core.
run_verb() {
  local program=$1 verb=$2
  shift 2
  take_knobs "${program}" "$@"
  ensure_setup
  find_repository
  core "${verb}"
}

# The same for a verb that launches: the secrets of the repository's .env come along.
launch_verb() {
  local program=$1 verb=$2
  shift 2
  take_knobs "${program}" "$@"
  ensure_setup
  find_repository
  load_dotenv "${AR_REPO}/.env"
  core "${verb}"
}
