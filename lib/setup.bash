# Summary: makes .venv from pyproject.toml once; an interrupted or outdated one is repaired by the next call.
# shellcheck shell=bash

: "${root:?is set by lib/program.bash}"

# The marker is written last, so a set-up that was cut off is seen as not done.
ensure_setup() {
  local marker=${root}/.venv/.autoresearch-ready
  if [[ -e ${marker} && ! ${root}/pyproject.toml -nt ${marker} ]]; then return 0; fi
  set_up
}

# ensure_extra NAME: the packages of an extra (demo, dev) come into the same .venv, once.
ensure_extra() {
  local marker=${root}/.venv/.autoresearch-$1-ready
  if [[ -e ${marker} && ! ${root}/pyproject.toml -nt ${marker} ]]; then return 0; fi
  set_up "$1"
  : >"${marker}"
}

# set_up [EXTRA]: installs the dependencies (and those of an extra, e.g. dev) into .venv.
set_up() {
  local extra=${1-} lock
  # Two first calls at once: the second waits and finds the work done.
  exec {lock}>"${root}/.venv.lock" || refuse "set-up" "cannot write in ${root}" "check who owns the checkout"
  flock -w 600 "${lock}" || refuse "set-up" "another set-up is still running" "wait for it and call again"
  local marker=${root}/.venv/.autoresearch-ready
  if [[ -z ${extra} && -e ${marker} && ! ${root}/pyproject.toml -nt ${marker} ]]; then
    exec {lock}>&-
    return 0
  fi
  say "set-up: making ${root}/.venv (once)"
  if ! install_into_venv "${extra}" {lock}>&-; then
    # A venv that a kill left half made can defeat any install: start it afresh. The one that is there comes back when
    # that fails too: without a network an older one still serves.
    rm -rf -- "${root:?}/.venv.aside"
    [[ ! -e ${root}/.venv ]] || mv -- "${root}/.venv" "${root}/.venv.aside"
    if ! install_into_venv "${extra}" {lock}>&-; then
      rm -rf -- "${root:?}/.venv"
      [[ ! -e ${root}/.venv.aside ]] || mv -- "${root}/.venv.aside" "${root}/.venv"
      fail "set-up" "the packages could not be installed (see above)" "check the network, then: make setup"
    fi
    rm -rf -- "${root:?}/.venv.aside"
  fi
  exec {lock}>&-
}

# uv when present (seconds), else venv and pip.
install_into_venv() {
  local extra=$1 python site
  local -a packages=()
  python=$(find_python) || return 1
  mapfile -d '' -t packages < <("${python}" -I "${root}/lib/requirements.py" "${root}/pyproject.toml" "${extra}")
  ((${#packages[@]} > 0)) || return 1
  make_venv "${python}" || return 1
  if type -P uv >/dev/null; then
    uv pip install --quiet --python "${root}/.venv/bin/python" -- "${packages[@]}" >&2 || return 1
  else
    run_pip "${python}" install --quiet --disable-pip-version-check --use-pep517 -- "${packages[@]}" >&2 || return 1
  fi
  # A plain .pth instead of an editable install: no build back end to download, nothing to import at each start.
  site=$("${root}/.venv/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return 1
  printf '%s\n' "${root}" >"${site}/autoresearch.pth" || return 1
  "${root}/.venv/bin/python" -I -m compileall -q "${root}/autoresearch" >/dev/null || true
  "${root}/.venv/bin/python" -I -c 'import autoresearch, dotenv, tabulate, git, sh' || return 1
  : >"${root}/.venv/.autoresearch-ready"
}

make_venv() {
  [[ -x ${root}/.venv/bin/python ]] && return 0
  if type -P uv >/dev/null; then
    uv venv --quiet --no-python-downloads --python "$1" -- "${root}/.venv" >&2
  else
    # Debian ships venv without ensurepip unless python3-venv is installed; pip of the system can serve instead.
    "$1" -m venv -- "${root}/.venv" >/dev/null 2>&1 || "$1" -m venv --clear --without-pip -- "${root}/.venv" >&2
  fi
}

run_pip() {
  local python=$1
  shift
  if "${root}/.venv/bin/python" -I -m pip --version >/dev/null 2>&1; then
    "${root}/.venv/bin/python" -I -m pip "$@"
  elif "${python}" -I -m pip --version >/dev/null 2>&1; then
    "${python}" -I -m pip --python "${root}/.venv/bin/python" "$@"
  else
    say "set-up: this Python has no pip: install uv, or the package python3-venv, then: make setup"
    return 1
  fi
}

# The first Python of 3.11 or newer on PATH.
find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if type -P "${name}" >/dev/null \
      && "${name}" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      type -P "${name}"
      return 0
    fi
  done
  say "set-up: no Python 3.11 or newer on PATH: install one, then: make setup"
  return 1
}
