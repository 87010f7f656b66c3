#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# Each program of bin/: its header is its help, wrong use is 2 and touches nothing; and what the sources may not hold.

load helpers

setup() {
  hermetic_setup
}

# assert_nothing FOUND WHAT: fails with what was found.
assert_nothing() {
  if [[ -n $1 ]]; then
    printf '%s:\n%s\n' "$2" "$1" >&2
    return 1
  fi
}

@test "each program has Summary, Usage, Knobs, Exit codes and Example, in this order" {
  for program in "${ROOT}"/bin/*; do
    header=$(sed -n '2,/^[^#]/p' "${program}" | grep -oE '^# (Summary|Usage|Knobs|Exit codes|Example):( .*)?$' | sed 's/:.*//')
    assert_equal "${program##*/} ${header}" "${program##*/} # Summary"$'\n# Usage\n# Knobs\n# Exit codes\n# Example'
    read -r summary < <(sed -n 's/^# Summary: //p' "${program}")
    [[ ${summary} == *. && ${#summary} -le 110 ]]
    assert_contains "$(sed -n 's/^# Usage: //p' "${program}")" "bin/${program##*/}"
    test -x "${program}"
  done
}

@test "each program begins and ends alike" {
  for program in "${ROOT}"/bin/*; do
    assert_equal "$(head -n 1 "${program}")" '#!/usr/bin/env bash'
    grep -qxF 'set -Eeuo pipefail' "${program}"
    grep -qxF 'self=$(readlink -f -- "${BASH_SOURCE[0]}")' "${program}"
    assert_equal "$(tail -n 2 "${program}")" $'main "$@"\nexit'
    grep -qF "take_knobs" "${program}" || grep -qE '^  (run|launch)_verb "\$\{self\}"' "${program}"
  done
  grep -qxF 'set -Eeuo pipefail' "${ROOT}/lib/program.bash"
  grep -qxF 'shopt -s inherit_errexit' "${ROOT}/lib/program.bash"
}

@test "no program bears the name of a standard one" {
  for program in "${ROOT}"/bin/*; do
    name=${program##*/}
    case ${name} in
      # Words of the campaign that no system program of these names is expected to serve in scripts.
      wait | help | doctor | note | share | hold | show | start | stop | status | series) continue ;;
    esac
    PATH=/usr/bin:/bin run ! type -P "${name}"
  done
}

@test "--help prints the header on stdout, anywhere on the line, and does nothing else" {
  copy_checkout "${base}/copy"
  cd /
  for program in "${base}"/copy/bin/*; do
    run --separate-stderr "${program}" --help
    assert_status 0
    assert_equal "${stderr}" ""
    assert_equal "${output}" "$(sed -n '2,/^[^#]/p' "${program}" | sed -n 's/^# \{0,1\}//p')"
    run --separate-stderr "${program}" -h
    assert_status 0
  done
  test ! -e "${base}/copy/.venv"
}

@test "a word that is no knob, and an unknown knob, are wrong use that names the remedy and does nothing" {
  copy_checkout "${base}/copy"
  cd /
  for program in "${base}"/copy/bin/*; do
    name=${program##*/}
    for word in nonsense --force '$(touch pwned)' lower=x ''; do
      run --separate-stderr "${program}" "${word}"
      assert_status 2
      assert_equal "${output}" ""
      assert_contains "${stderr}" "autoresearch: ${name}: "
      assert_contains "${stderr}" "${name} --help"
    done
    for knob in NMAE 'A[$(touch pwned)]'; do
      run --separate-stderr "${program}" "${knob}=x"
      assert_status 2
      assert_contains "${stderr}" "unknown knob '${knob}'"
    done
  done
  test ! -e "${base}/copy/.venv"
  test ! -e /pwned
}

@test "an example that is one line splits into knobs its program knows" {
  for program in "${ROOT}"/bin/*; do
    name=${program##*/}
    example=$(sed -n 's/^# Example: //p' "${program}")
    [[ -n ${example} ]]
    [[ ${example} == *"bin/${name}"* || ${example} == "make "* ]]
    while read -r knob; do
      grep -qE "^#   ${knob}(=|  )" "${program}"
    done < <(grep -oE '\b[A-Z][A-Z0-9_]*=' <<<"${example}" | tr -d = | grep -v '^MAKE$')
  done
}

@test "the exit codes that a header names are those of the table" {
  for program in "${ROOT}"/bin/*; do
    for code in $(sed -n 's/^# Exit codes: //p' "${program}" | grep -oE '(^|; )[0-9]+' | tr -d '; '); do
      [[ " 0 1 2 3 4 75 " == *" ${code} "* ]]
    done
  done
}

@test "the shell sources hold nothing that runs text" {
  cd -- "${ROOT}"
  # Comments may name what code may not hold.
  sources=$(grep -nE '^' bin/* lib/*.bash | grep -vE '^[^:]+:[0-9]+: *#')
  assert_nothing "$(grep -E '(^|[;&|({ ])eval ' <<<"${sources}")" "eval"
  assert_nothing "$(grep -E '(source|\. ) *[^ ]*\.env' <<<"${sources}")" "a sourced .env"
  assert_nothing "$(grep -E 'declare -?[a-zA-Z]* *"?\$|printf -v|local -n|read -?r? "\$|\$\{!|test -v|\[\[ -v' <<<"${sources}")" \
    "a variable named by text"
  assert_nothing "$(grep -E '\[\[.* -(gt|lt|ge|le|eq|ne) |\blet |declare -i' <<<"${sources}")" "arithmetic on text"
  assert_nothing "$(grep -F '((' <<<"${sources}" | grep -vE '\(\((\$# |\$\{#[a-z_]+(\[@\])?\} |status [!=]= 0|\$\? == 4)' \
    | grep -vF '$((')" "arithmetic on something that is not ours"
  assert_nothing "$(grep -E 'local [a-z_]+="?\$\(|export [A-Z_a-z]+="?\$\(|readonly [a-z_]+="?\$\(' <<<"${sources}")" \
    "a status that is masked"
  assert_nothing "$(grep -E 'echo |(^|[ ;])rm +(-[a-z]+ +)?[^- ]|xargs|exit 130' <<<"${sources}")" "echo, a bare rm or xargs"
}

@test "the Makefile holds no value in a recipe and includes nothing" {
  cd -- "${ROOT}"
  while read -r knob; do
    assert_nothing "$(grep -nE "\\$\\(${knob}\\)|\\$\\{${knob}\\}" Makefile | grep -v '^[0-9]*:#')" "\$(${knob})"
  done < <(for program in bin/*; do sed -n 's/^#   \([A-Z][A-Z0-9_]*\).*/\1/p' "${program}"; done | sort -u)
  assert_nothing "$(grep -nE '^-?include|\.ONESHELL|\$\(shell' Makefile | grep -v '^[0-9]*:#')" "include or shell"
  # The freeze comes before everything that make could expand.
  first=$(grep -nE '^[^#]*(\$\(foreach|\$\(eval|:=.*\$\()' Makefile | head -n 1)
  assert_contains "${first}" '$(foreach v,$(.VARIABLES)'
}

@test "the core starts no shell, forces nothing in git, and removes only through its owner" {
  cd -- "${ROOT}"
  assert_nothing "$(grep -rnE 'shell=True|os\.system\(|os\.popen\(|[^.a-z]eval\(|[^.a-z]exec\(|pickle' --include='*.py' autoresearch)" \
    "a shell, or text that runs"
  assert_nothing "$(grep -rnE '(run|call|start)\("(reset|stash|checkout|clean|gc|switch|restore|rebase|prune|filter-branch)"' \
    --include='*.py' autoresearch)" "destructive git"
  assert_nothing "$(grep -rnE '"(--force|--force-with-lease|--hard|-D|--delete)"|"branch", *"-[fdDM]"|"update-ref", *"-d"' \
    --include='*.py' autoresearch)" "a branch that is forced or deleted"
  assert_equal "$(grep -rlE '"push"' --include='*.py' autoresearch)" autoresearch/verbs/share.py
  assert_nothing "$(grep -rnE 'load_dotenv|find_dotenv|interpolate=True' --include='*.py' autoresearch)" "a .env that is searched for"
  removers=$(grep -rlE 'rmtree\(|rmdir\(' --include='*.py' autoresearch | sort | tr '\n' ' ')
  for file in ${removers}; do
    case ${file} in
      */removal.py | */environment.py | */strays.py | */treefill.py | */trees.py | */sockets.py | */hooked.py) ;;
      */eviction.py | */treerecords.py | */session_files.py | */freshness.py | */launchers/*) ;;
      *)
        printf 'a new place removes directories: %s\n' "${file}" >&2
        return 1
        ;;
    esac
  done
}
