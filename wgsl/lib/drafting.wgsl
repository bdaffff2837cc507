// What is known of the drafts of each sequence: the buffer `drafting`. replay.js gets the fields' offsets from here.
#param MAX_SEQUENCES
struct Drafting {
  end: u32, // only positions before this one may be computed by prompt lookup; written by the host; 0: no prompt lookup
  length: u32, // tokens of the next draft by prompt lookup at most; the host writes the first value
  newest: u32, // position of the newest token
  count: u32, // draft tokens after it
}
@bind var<storage, read_write> drafting: array<Drafting, MAX_SEQUENCES>;
