"""Model files: GGUF headers, downloads, records, and the cache of records in IndexedDB.

May know: files, URLs, hashes, browser storage.
Must not know: plans, kernels, devices, text.
"""
