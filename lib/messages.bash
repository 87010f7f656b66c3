# Summary: the one form of a message: `autoresearch: what: why: what to do`, on stderr.
# shellcheck shell=bash

say() {
  printf 'autoresearch: %s\n' "$*" >&2
}

# wrong_use WHAT WHY FIX: the call itself is wrong; nothing was done.
wrong_use() {
  printf 'autoresearch: %s: %s: %s\n' "$1" "$2" "$3" >&2
  exit 2
}

# refuse WHAT WHY FIX: a precondition does not hold; nothing was changed.
refuse() {
  printf 'autoresearch: %s: %s: %s\n' "$1" "$2" "$3" >&2
  exit 3
}

# fail WHAT WHY FIX: something unexpected broke.
fail() {
  printf 'autoresearch: %s: %s: %s\n' "$1" "$2" "$3" >&2
  exit 1
}
