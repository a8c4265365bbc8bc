//! Slate's protocol: a connection's frames, in order.

mod execute;
mod session;
mod translate;

use std::{collections::VecDeque, sync::Arc};

use bytes::{Buf as _, BytesMut};
use orlop_net::Stream;
use slate_client::protocol::{self, ErrorCode, FrameHead, Request, Response};
use tokio::sync::watch;

use self::session::Session;
use crate::{connection::Connection, context::SharedContext};

/// Frames decoded at once. More wait in the socket.
const BATCH_FRAMES: usize = 1024;

type Requests = VecDeque<Result<Request, Response>>;

/// Serves one connection until it ends, is idle or slow for too long, or the server stops.
pub(crate) async fn serve(stream: Stream, context: SharedContext, stop: watch::Receiver<bool>) {
    let mut connection = Connection::new(stream, Arc::clone(&context.limits), stop);
    let mut session = Session::new(context);
    loop {
        let (mut requests, end) = take_requests(&mut connection, session.frame_len_max());
        let answered = !requests.is_empty();
        while !requests.is_empty() {
            let Some((output, rest)) = answer(&mut session, requests).await else { return };
            requests = rest;
            if !connection.send(&output).await || session.is_refused() {
                return;
            }
        }
        let message_len = match end {
            End::Fatal(response) => {
                let mut output = Vec::new();
                if protocol::encode_frame(&response, &mut output).is_ok() {
                    connection.send(&output).await;
                }
                break;
            }
            End::Incomplete(message_len) => message_len,
        };
        if connection.is_stopping() {
            break;
        }
        // After an answer more frames may be complete already.
        if !answered && !connection.read_more(message_len).await {
            break;
        }
    }
    connection.close().await;
}

/// Reason why no further request could be taken.
enum End {
    /// More bytes are needed: for a frame of this length, if it is known.
    Incomplete(Option<usize>),
    /// The connection ends after this answer.
    Fatal(Response),
}

/// Takes complete requests from a connection's buffer.
fn take_requests(connection: &mut Connection, max: usize) -> (Requests, End) {
    let mut requests = VecDeque::new();
    let end = loop {
        match protocol::frame_head(&connection.buffer, max) {
            _ if requests.len() >= BATCH_FRAMES => break End::Incomplete(None),
            FrameHead::Incomplete => break End::Incomplete(frame_len(&connection.buffer)),
            FrameHead::TooLarge(length) => {
                let message = format!("a frame of {length} bytes exceeds the limit of {max}");
                break End::Fatal(Response::Error { code: ErrorCode::TooLarge, message });
            }
            FrameHead::Complete(length) => {
                let mut frame = connection.take(4 + length);
                frame.advance(4);
                requests.push_back(decode(&frame));
            }
        }
    };
    (requests, end)
}

/// Returns the length of the frame that a buffer begins with, its head included.
fn frame_len(buffer: &BytesMut) -> Option<usize> {
    let length = buffer.first_chunk::<4>()?;
    Some(4 + u32::from_be_bytes(*length) as usize)
}

fn decode(frame: &[u8]) -> Result<Request, Response> {
    protocol::decode::<Request>(frame).map_err(|error| Response::Error {
        code: ErrorCode::Invalid,
        message: format!("not a request: {error}"),
    })
}

/// Runs requests in order and encodes their responses, as many as fit one output. Returns it with the
/// requests that are left. Nothing: a request panicked.
async fn answer(session: &mut Session, mut requests: Requests) -> Option<(Vec<u8>, Requests)> {
    let quick =
        requests.iter().all(|request| matches!(request, Ok(Request::FindById { .. } | Request::Ping)));
    if quick && session.reads_at_once() {
        let output = session.run(&mut requests);
        return Some((output, requests));
    }
    let mut taken = session.clone();
    let ran = tokio::task::spawn_blocking(move || {
        let output = taken.run(&mut requests);
        (taken, output, requests)
    });
    let (returned, output, rest) = ran.await.ok()?;
    *session = returned;
    Some((output, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_frames_fail_without_panic(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&frame);
        }
    }
}
