# Summary: the hand-over of .env: the core parses it as data, NUL-separated pairs cross over, bash exports them.
# shellcheck shell=bash

: "${root:?is set by lib/program.bash}"

# Exports every key of the file $1 and names them in AR_DOTENV_KEYS; costs nothing when there is no such file.
load_dotenv() {
  local file=$1 key='' value='' status=0 parser
  local -a keys=()
  [[ -e ${file} || -L ${file} ]] || return 0
  exec 3< <("${root}/.venv/bin/python" -I -m autoresearch.dotenv_file "${file}")
  parser=$!
  while IFS= read -r -d '' key <&3 && IFS= read -r -d '' value <&3; do
    # `export "$key=$value"` only: declare, printf -v and ${!key} would run a key such as a[$(cmd)]. The parser refuses
    # the keys whose value bash would read as arithmetic, RANDOM say, which runs it too.
    export "${key}=${value}"
    keys+=("${key}")
  done
  exec 3<&-
  # The status of a process substitution is invisible without this, and half a file would pass for a whole one.
  wait "${parser}" || status=$?
  if ((status != 0)); then exit "${status}"; fi
  export AR_DOTENV_KEYS="${keys[*]-}"
}
