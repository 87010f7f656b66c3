# Summary: the steps of `make test` and `make check`; sourced by bin/run-tests and bin/run-checks.
# shellcheck shell=bash

: "${root:?is set by lib/program.bash}"

venv() {
  "${root}/.venv/bin/$1" "${@:2}"
}

# run_steps TITLE FUNCTION [-- TITLE FUNCTION ...]: runs every step, also after a failure; at the end it names what
# was skipped, so that a green run says what it did not look at, and what failed.
run_steps() {
  local title failed=() output
  output=$(mktemp)
  while (($# > 0)); do
    title=$1
    printf '\n== %s\n' "${title}"
    # A subshell of its own with errexit: inside `if` a function would run on after a failing command.
    (
      cd -- "${root}" || exit
      "$2" 2>&1 | tee -a -- "${output}"
    ) &
    wait "$!" || failed+=("${title}")
    shift 2
    [[ ${1-} != -- ]] || shift
  done
  say_skipped "${output}"
  rm -f -- "${output}"
  if ((${#failed[@]} > 0)); then
    printf '\nFAILED: %s\n' "${failed[*]}"
    exit 1
  fi
  printf '\nall passed\n'
}

# Lists the skipped tests of pytest and bats with their reasons.
say_skipped() {
  local -a skipped
  mapfile -t skipped < <(grep -aE '^SKIPPED |^ok [0-9]+ .* # skip' -- "$1" | sort -u)
  if ((${#skipped[@]} == 0)); then return 0; fi
  printf '\nnot looked at on this machine:\n'
  printf '  %s\n' "${skipped[@]}"
}

shell_files() {
  git -C "${root}" ls-files -z -- bin lib '*.bash' '*.bats' '*.sh' tests/engines .ci ':!tests/data' \
    | while IFS= read -r -d '' file; do
      [[ -f ${root}/${file} ]] || continue
      case ${file} in
        *.py) ;;
        *) printf '%s\0' "${file}" ;;
      esac
    done
}

run_shellcheck() {
  local -a files
  mapfile -d '' -t files < <(shell_files)
  venv shellcheck -- "${files[@]}"
}

run_shfmt() {
  local -a files
  mapfile -d '' -t files < <(shell_files)
  venv shfmt --diff -- "${files[@]}"
}

run_ruff() {
  venv ruff check .
  venv ruff format --check .
}

run_reference() {
  venv python docs/generate.py --check
}

run_mypy() {
  venv mypy
}

run_pytest() {
  venv pytest -q -n 2 -m 'not slow and not engine' tests
}

run_bats() {
  PATH="${root}/.venv/bin:${PATH}" venv bats --jobs 1 --print-output-on-failure tests
}

run_slow() {
  venv pytest -q -m 'slow and not engine' tests
}

run_engines() {
  venv pytest -q -m engine tests
}
