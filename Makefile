# What people type. Each target is one line that calls a small program in bin/; cron, CI and agents call bin/ directly,
# because make turns every failure into 2. `make` alone prints the targets; `bin/VERB --help` prints the knobs of one.

KNOBS := ALL ALLOW_EMPTY ATTEMPT BASE CAMPAIGN CLEAN_CACHE CMD CONFIRM DETACH DIR DIRECTION DISK_CHECK_S \
  DISK_RESERVE_GB ENGINE_PATIENCE EXPORT FILES FORCE_LOCAL GPUS GRACE_S GUARD HYPOTHESIS JSON K8S_INFRA K8S_NAMESPACE \
  K8S_PATHS KIND LAUNCHER LEDGER LINES LOG LOG_MAX_GB METRIC METRIC_AT METRIC_OPTIONS MIN_FREE_GB MIN_FREE_PCT NAME \
  NEW NOISE NRL_K8S OBJECTIVE OVERRIDES PARENT PATCH PEERS PREFIX PROGRESS_S PROTECT PROTECT_OK QUEUE_LIMIT \
  RAY_ADDRESS RAY_CPUS RAY_GPUS RAY_SECRETS REASON RECIPE RELEASE REMOTE REPEAT REPEATS REPO REQUIRE SCRATCH SECRETS \
  SLOTS SLURM_ARGS SLURM_CONTAINER SLURM_ENV SLURM_MOUNTS SLURM_SCRIPT SLURM_STARTUP SMOKE SMOKE_OVERRIDES STALL_MIN \
  STALL_STOP STATUS STOP TEXT TIMEOUT UV_CACHE WAIT WITH YES

# Freeze what was typed before make can expand it: a value goes to bin/ as AR_NAME, byte for byte, and nowhere else
# (`make t NAME='$(shell touch x)'` would run the payload otherwise). Unknown names stop the call.
MAKEOVERRIDES :=
override AR_GIVEN :=
$(foreach v,$(.VARIABLES),$(if $(findstring command line,$(origin $(v))),$(if $(filter $(v),$(KNOBS)),,$(error autoresearch: unknown knob '$(v)': `make help` lists the targets and bin/VERB --help the knobs of one))$(eval override AR_$(v) := $$(value $(v)))$(eval export AR_$(v))$(eval override $(v) := $$(value $(v)))$(eval unexport $(v))$(eval override AR_GIVEN += $(v))))
export AR_GIVEN

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# target = program, where the two differ because bin/ bears no name of a standard program.
VERBS := setup demo doctor check-disk plan approve baseline start release experiment status wait stop show mark extend \
  summarize compare reproduce series metric recipe ledger share clean-campaign hold session note goal handoff resume \
  ideas install-skill bench
.PHONY: help env tail test check $(VERBS)

help: ; @bin/help
env: ; @bin/show-env
tail: ; @bin/show-log
test: ; @bin/run-tests
check: ; @bin/run-checks
$(VERBS): ; @bin/$@
