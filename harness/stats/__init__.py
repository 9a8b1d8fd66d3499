"""Pure statistics: numbers in, numbers out; no files, no devices, no runs."""
