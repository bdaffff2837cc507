"""What tests share: browsers, servers and pages to drive, references to compare with, and cases."""
