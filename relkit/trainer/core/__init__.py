"""The parallel GPT: model, parallelism, pipeline, optimizer, one step; for one sitting."""
