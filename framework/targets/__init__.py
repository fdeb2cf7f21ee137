"""The kinds of target model, one file each."""
