"""The Hydra configuration that ships: the main config, presets and experiments."""
