#!/usr/bin/env bash
# What needs a GPU, in parts with a limit each: tests/gpu/record.sh [--smoke] [contract|profile|steps|trl|pretrained ...]
# Figures come as they are measured; whole logs and all numbers are in $OUT (one file each part). Each part ends within
# its limit, whatever it has left. --smoke: the smallest sizes on a CPU; what needs a GPU says that it is skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
smoke=
[ "${1:-}" = --smoke ] && { smoke=--smoke; shift; }
out=${OUT:-$(mktemp -d)} python=${PYTHON:-python3} models=${MODELS:-/tmp/gpu-models}
[ -n "$smoke" ] && models=$(mktemp -d)
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false VLLM_LOGGING_LEVEL=INFO
mkdir -p "$out" "$models"
started=$SECONDS count=128 short=128 tokens=512
[ -n "$smoke" ] && count=4 short=8 tokens=8
# Our figures, and what vLLM says of the parts of its start.
figures='^measured|MiB|ms a token|[0-9] x [0-9]|TRL|PASSED|FAILED|SKIPPED|skipped|Error|step|seed|agents|took [0-9]|takes [0-9]|finished in|compile cache|AOT compil'
noise='\|.*it/s|Warning|warn|^\[transformers\]|Loading weights:|Writing model'

has() { "$python" -c "import sys, importlib.util as u; sys.exit(u.find_spec('$1') is None)"; }
has_gpu() { [ -z "$smoke" ] && "$python" -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; }

run() {  # PART LIMIT COMMAND...: its figures on the terminal, all it says in $out/PART.log
  local part=$1 limit=$2 begun=$SECONDS; shift 2
  [ -n "$smoke" ] && limit=300  # of a machine with other work
  echo "== $((begun - started)) s: $part: $*"
  timeout -k 5 "$limit" "$@" > >(tee -a "$out/$part.log" | grep --line-buffered -E "$figures" | grep --line-buffered -vE "$noise") 2>&1
  local status=$?
  sleep .2
  [ $status = 0 ] || { echo "   status $status after $((SECONDS - begun)) s:"; tail -n 6 "$out/$part.log" | cut -c1-300; }
}
bench() { local part=$1 limit=$2; shift 2; run "$part" "$limit" "$python" -m tests.bench.gpu "$@" $smoke --root "$models" --json "$out/$part.jsonl"; }

tested() {  # LIMIT FILE: whatever the machine has of what the rest of the suite needs
  run contract "$1" "$python" -m pytest -c /dev/null --rootdir . --noconftest -p no:cacheprovider -p no:django -sv --tb=short "$2"
}

contract() {  # vLLM: starts, log-probabilities, twenty cycles of sleep and new weights, LoRA, ratio 1; CUDA graphs
  has_gpu || { echo "contract: skipped, it needs a GPU"; return; }
  tested 420 tests/gpu/test_engine.py  # of them 160 s a pair's engines start
  tested 120 tests/gpu/test_decoder.py
}

profile() {  # of passes and of sampling
  bench profile 120 tokens --tokens $count
  bench profile 60 passes
}

steps() {
  bench steps 140 step --sampler static --recomputing off --chunk 1024
  if [ -n "$smoke" ] || ! has vllm; then
    echo "steps: vllm is skipped, it needs a GPU and vLLM"
  else
    bench steps 190 step --sampler vllm --recomputing off --chunk 1024
  fi
  bench steps 100 step --sampler growing --recomputing on --chunk 256 --tokens $short
}

trl() {
  has trl || { echo "trl: skipped, TRL is not installed"; return; }
  if [ -z "$smoke" ] && has vllm; then
    bench trl 150 trl --sampler vllm --tokens $tokens
  fi
  bench trl 120 trl --tokens $tokens
}

pretrained() {
  local more="--algorithms hacpo,signed,gspo --seeds 3 --steps 12 --parallel 9 --deadline ${DEADLINE:-150}"
  run pretrained 400 "$python" -m tests.bench.pretrained "$models/pretrained" ${smoke:-$more}
}

[ $# = 0 ] && set -- contract profile steps trl pretrained
for part in "$@"; do "$part"; done
echo "== $((SECONDS - started)) s: done"
