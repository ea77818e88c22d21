"""What to train and how: sections, MindFormers' YAML, presets."""
