# Two commands do everything on a fresh Debian or Ubuntu machine:
#   make demo   sets up .venv, builds, installs, and shows a real hang being explained
#   make test   sets up all that the tests need, and runs all but the long ones
# What CI runs: make test-all (every test). For the daily edit: make check (ruff, mypy --strict, quick tests of
# the rooms that differ from main; make check ROOMS="hang launch/spares" for others).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.[ch]' -o -name 'CMakeLists.txt' -o -name '*.map')

.PHONY: demo test test-user test-all check fresh-check kube-test explore audit mutants bench format stress soak release gpu-check docs docs-serve clean FORCE

demo: $(VENV)/.runtime
	$(BIN)/relkit demo $(DEMO_ARGS)

test: $(VENV)/.develop
	tools/debian_packages.sh
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-few} $(BIN)/python -m tools.run_tests $(TESTS)

# As root: the same as an ordinary user, on a copy of the checkout that is the user's own.
test-user: $(VENV)/.develop
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-few} tools/as_user.sh $(BIN)/python -m tools.run_tests --no-checks $(TESTS)

test-all: $(VENV)/.develop
	tools/debian_packages.sh
	$(BIN)/python -m tools.run_tests --all

check: $(VENV)/.develop
	HYPOTHESIS_PROFILE=few $(BIN)/python -m tools.run_tests --touched $(ROOMS)

# New random examples for every property; what CI runs is the same each time.
explore: $(VENV)/.develop
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q tests/unit

# Fuzzers of all that is read from elsewhere, ten minutes each: AUDIT_ARGS="--seconds 20 dumps".
audit: $(VENV)/.develop
	$(BIN)/python -m tools.audit $(AUDIT_ARGS)

# Does a test notice when a line is broken? Of the lines that a change touches; of files and folders, with
# PATHS="relkit/hang ..."; of any lines, with SAMPLE=100 SEED=7, against the ratchet of each room; or of the
# promises that matter most, with MUTANTS_ARGS=--promises.
mutants: $(VENV)/.develop
	nice $(BIN)/python -m tools.mutants $(if $(SAMPLE),--sample $(SAMPLE) --seed $(or $(SEED),0)) $(MUTANTS_ARGS) $(PATHS)

# What a user waits for, as whole commands, beside their peers, into docs/benchmarks.md: half an hour, or
# some minutes with BENCH_ARGS="--quick". First the tests that judge the speed of this machine, which has to
# be quiet for all of it.
bench: $(VENV)/.develop
	$(BIN)/python -m pytest -q -m speed tests/straggler
	$(BIN)/python benchmarks/bench.py --write $(BENCH_ARGS)

format: $(VENV)/.develop
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .
	tools/c_format.sh -i

stress: $(VENV)/.develop
	$(BIN)/python tools/stress.py
	$(BIN)/python benchmarks/ttp/ttp_many_ranks.py --ranks 5000
	ALL_ZERO_STAGES=1 $(BIN)/python -m pytest -q tests/flash_checkpoint/test_deepspeed_jobs.py
	STATIC_RESTARTS=100 $(BIN)/python -m pytest -q tests/cluster/restarts/test_static.py

# An hour of a job in which everything comes and goes: is all that it holds flat, are its losses a bare
# run's? SOAK_ARGS="--minutes 5".
soak: $(VENV)/.develop
	$(BIN)/python -m tools.soak $(SOAK_ARGS)

# What a release consists of, built into dist/ and checked; the news are shown. Nothing is pushed, and
# tagged only with RELEASE_ARGS=--tag.
release: $(VENV)/.develop
	$(BIN)/pip install -q -c constraints.txt --group release
	$(BIN)/python -m tools.release $(RELEASE_ARGS)

# make demo and make test-all as root in a bare Debian, in namespaces; FRESH_ARGS="test tests/native".
fresh-check:
	$(PYTHON) -m tools.fresh_check $(FRESH_ARGS)

# As root on Debian 12: a real API server, kubelets and containerd, in namespaces; elsewhere it says why not. Built once, a quarter
# of an hour of CPU time. KUBEBUILDER_ASSETS=the folder of a newer kube-apiserver and etcd: these are asked too.
kube-test: $(VENV)/.develop
	@if tools/kube_test/build.sh; then tools/debian_packages.sh && \
		unshare --net --mount --pid --mount-proc --fork --kill-child=TERM $(BIN)/python -m tools.kube_test $(KUBE_TEST_ARGS); \
	else [ $$? -eq 3 ]; fi

# On a machine with an NVIDIA GPU: PYTHON=the interpreter that has torch with CUDA.
gpu-check:
	PYTHON="$(PYTHON)" tools/gpu_check.sh $(GPU_CHECK_ARGS)

# The site in build/site; open index.html, no server is needed. The reference pages are made anew.
docs: $(VENV)/.develop
	$(BIN)/python -m tools.docs_reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

docs-serve: $(VENV)/.develop
	$(BIN)/python -m tools.docs_reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve -a 127.0.0.1:8000

$(BIN)/pip:
	tools/make_venv.sh "$(PYTHON)" $(VENV)

# An editable install knows its modules by name: it is made anew when one comes, goes or moves.
$(VENV)/.modules: $(BIN)/pip FORCE
	@find relkit commands reports -name '*.py' | LC_ALL=C sort >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(VENV)/.runtime: $(BIN)/pip $(VENV)/.modules pyproject.toml constraints.txt CMakeLists.txt $(NATIVE)
	tools/check_compiler.sh
	@# An install of before the distribution had its name has the same modules and the same command.
	$(BIN)/pip uninstall -qq -y relkit
	$(BIN)/pip install -q -c constraints.txt -e '.[torch]'
	touch $@

$(VENV)/.develop: $(VENV)/.runtime
	$(BIN)/pip install -q -c constraints.txt --group test --group lint --group docs
	$(BIN)/python -m tools.get_helm
	touch $@

clean:
	rm -rf $(VENV) build
