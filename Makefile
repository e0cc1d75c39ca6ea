# The common tasks. Every one is a script that also works by itself.
.PHONY: help build test quick format run docs
help:   ## list the tasks
	@sed -n 's/^\([a-z]*\): *## /  make \1	/p' $(MAKEFILE_LIST)
build:  ## install missing packages and build for debugging
	ops/install --build && swift build
test:   ## every test (long), before you propose a change
	ops/test
quick:  ## the quick tests, while you work
	ops/test --quick
format: ## format the Swift sources
	dev/format
run:    ## start a deployment and let two devices exchange a value
	ops/run
docs:   ## check the documentation against the code
	dev/check-claims && dev/check-prose
