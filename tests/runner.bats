#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2154
# The runner is tested too: a test that must fail, fails, and so does each step of the checks.

load helpers

setup() {
  hermetic_setup
  copy=${base}/copy
  copy_checkout "${copy}"
  # The tools of ours, but a marker of its own: nothing here may install into our .venv.
  mkdir "${copy}/.venv" "${copy}/tests"
  ln -s "${ROOT}/.venv/bin" "${ROOT}/.venv/lib" "${copy}/.venv/"
  cp "${ROOT}/.venv/pyvenv.cfg" "${copy}/.venv/"
  : >"${copy}/.venv/.autoresearch-ready"
  for extra in demo dev; do : >"${copy}/.venv/.autoresearch-${extra}-ready"; done
  printf 'def test_fine():\n    assert True\n' >"${copy}/tests/test_fine.py"
  printf '@test "fine" {\n  true\n}\n' >"${copy}/tests/fine.bats"
}

# in_copy PROGRAM...: the runner as a person starts it; an outer bats or pytest is not inherited.
in_copy() {
  run env -i "HOME=${home}" "PATH=${PATH}" "TMPDIR=${base}/tmp" "$@"
}

@test "what passes, passes" {
  in_copy "${copy}/bin/run-tests"
  assert_status 0
  assert_contains "${output}" "1 passed"
  assert_contains "${output}" "ok 1 fine"
  assert_contains "${output}" "all passed"
}

@test "a failing pytest fails the run, and the later step still runs" {
  printf 'def test_broken():\n    assert False\n' >"${copy}/tests/test_broken.py"
  in_copy "${copy}/bin/run-tests"
  assert_status 1
  assert_contains "${output}" "FAILED: pytest"
  assert_contains "${output}" "ok 1 fine"
}

@test "a failing bats test fails the run, also in its middle" {
  printf '@test "broken" {\n  false\n  true\n}\n' >"${copy}/tests/broken.bats"
  in_copy make -s -C "${copy}" test
  assert_status 2
  assert_contains "${output}" "not ok 1 broken"
  assert_contains "${output}" "FAILED: bats"
}

@test "a test that cannot be loaded, and no test at all, fail the run" {
  printf 'import no_such_module\n' >"${copy}/tests/test_broken.py"
  printf '@test "open {\n' >"${copy}/tests/broken.bats"
  in_copy "${copy}/bin/run-tests"
  assert_status 1
  assert_contains "${output}" "FAILED: pytest bats"
  rm -r "${copy}"/tests/*
  in_copy "${copy}/bin/run-tests"
  assert_status 1
  assert_contains "${output}" "FAILED: pytest bats"
}

@test "each linter fails its step" {
  cd -- "${copy}"
  find bin autoresearch -mindepth 1 ! -name status ! -name errors.py -delete # a few files do, and are quicker
  git init -q && git add -A && git commit -q -m copy
  # One function at a time, as bin/run-checks calls it.
  step() {
    in_copy bash -c 'set -Eeuo pipefail; root=$1; source "${root}/lib/program.bash"; source "${root}/lib/checks.bash"; run_steps "$2" "$2"' \
      "$0" "${copy}" "$1"
  }
  cp "${ROOT}/.shellcheckrc" "${ROOT}/.editorconfig" "${copy}/"
  for name in run_shellcheck run_shfmt run_ruff; do
    step "${name}"
    assert_status 0
  done
  printf '# shellcheck shell=bash\nx=$(false)\necho $x\n' >lib/bad.bash
  printf 'import os\n' >autoresearch/bad.py
  git add -A
  for name in run_shellcheck run_ruff; do
    step "${name}"
    assert_status 1
    assert_contains "${output}" "FAILED: ${name}"
  done
  rm lib/bad.bash
  printf '"""Text."""\n\nx = {  "a":1 }\n' >autoresearch/bad.py # fine for the linter, not for the formatter
  printf '# shellcheck shell=bash\nif   true; then\n:\nfi\n' >lib/bad.bash
  git add -A
  for name in run_shfmt run_ruff; do
    step "${name}"
    assert_status 1
  done
}

@test "an unknown word stops the runner" {
  in_copy "${copy}/bin/run-tests" quick
  assert_status 2
  in_copy "${copy}/bin/run-checks" FAST=1
  assert_status 2
}
