//! Complete frames that are still to be answered.

use bytes::{Buf as _, BytesMut};
use slate_client::protocol::{self, ErrorCode, Request, Response};

/// Frames, one after the other, in one buffer.
#[derive(Debug)]
pub(super) struct Frames(BytesMut);

impl Frames {
    /// Wraps complete frames.
    pub(super) fn new(bytes: BytesMut) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the message of the first frame.
    pub(super) fn first(&self) -> Option<&[u8]> {
        message(&self.0)
    }

    /// Removes the first frame.
    pub(super) fn pop(&mut self) {
        let length = self.first().map_or(self.0.len(), |message| 4 + message.len());
        self.0.advance(length);
    }
}

fn message(frames: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(*frames.first_chunk::<4>()?) as usize;
    frames.get(4..4 + length)
}

/// Decodes a request, or says why it is none.
pub(super) fn decode(message: &[u8]) -> Result<Request, Response> {
    protocol::decode::<Request>(message).map_err(|error| Response::Error {
        code: ErrorCode::Invalid,
        message: format!("not a request: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_frames_fail_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let mut frames = Frames::new(BytesMut::from(bytes.as_slice()));
            while !frames.is_empty() {
                frames.pop();
            }
        }
    }
}
