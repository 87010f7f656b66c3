# Summary: which repository a call is about; the only owner of that decision.
# shellcheck shell=bash

: "${root:?is set by lib/program.bash}"

remembered_repository() {
  printf '%s' "${XDG_CONFIG_HOME:-${HOME:-/nonexistent}/.config}/autoresearch/repository"
}

# Sets `found` to the top of the repository around the caller's directory, empty when there is none.
# A tree of a campaign stands for the repository that the campaign belongs to (its marker's first line).
repository_around() {
  local dir=$1
  found=
  while [[ ! -e ${dir}/.git ]]; do
    [[ -n ${dir} ]] || return 0
    dir=${dir%/*}
  done
  if [[ ${dir} == */.trees/* && -r ${dir%/.trees/*}/.campaign ]]; then
    IFS= read -r dir <"${dir%/.trees/*}/.campaign" || true
  fi
  found=${dir}
}

# Exports AR_REPO as an absolute path: the knob; else the repository around the caller; else that of the last plan
# on this account (so that cron and `make -C` need no REPO); else the Brev checkout. autoresearch's own never counts.
find_repository() {
  local found='' given='' memory=''
  if [[ -n ${AR_REPO-} ]]; then
    given=$(cd -P -- "${AR_REPO}" 2>/dev/null && pwd -P) \
      || refuse "REPO" "no directory '${AR_REPO}'" "give the path of a git checkout"
    # A folder of a checkout means the checkout: its records, and their place in git's exclude, are those of the top.
    [[ -e ${given}/HEAD && -d ${given}/objects ]] || repository_around "${given}"
    export AR_REPO=${found:-${given}}
    return 0
  fi
  repository_around "$(pwd -P)"
  if [[ -z ${found} || ${found} == "${root}" ]]; then
    found=
    memory=$(remembered_repository)
    if [[ -r ${memory} ]]; then
      IFS= read -r found <"${memory}" || true
    fi
  fi
  if [[ -z ${found} && -d /home/ubuntu/RL ]]; then
    found=/home/ubuntu/RL
  fi
  if [[ -z ${found} ]]; then
    # autoresearch's own checkout is never the one that is meant, so standing in it says nothing.
    refuse "no repository" "the current directory is in none of yours, and no plan was made yet on this account" \
      "change into your training checkout, or add REPO=/path/to/it"
  fi
  if [[ ! -d ${found} ]]; then
    refuse "no repository" "${found}, where the last plan was made, is gone" "add REPO=/path/to/the/repository"
  fi
  export AR_REPO=${found}
}
