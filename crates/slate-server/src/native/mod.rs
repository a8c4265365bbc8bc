//! Slate's protocol: a connection's frames, in order.

mod execute;
mod frames;
mod point;
mod session;
mod translate;

use std::sync::Arc;

use bytes::BytesMut;
use orlop_net::Stream;
use slate_client::protocol::{self, ErrorCode, FrameHead, Response};
use tokio::sync::watch;

use self::{frames::Frames, session::Session};
use crate::{connection::Connection, context::SharedContext};

/// Most frames of one batch. More wait in the socket.
const BATCH_FRAMES: usize = 1024;

/// Serves one connection until it ends, is idle or slow for too long, or the server stops.
pub(crate) async fn serve(stream: Stream, context: SharedContext, stop: watch::Receiver<bool>) {
    let mut connection = Connection::new(stream, Arc::clone(&context.limits), stop);
    let mut session = Session::new(context);
    loop {
        let (mut frames, end) = take_frames(&mut connection, session.frame_len_max());
        let answered = !frames.is_empty();
        while !frames.is_empty() {
            let Some((output, rest)) = answer(&mut session, frames).await else { return };
            frames = rest;
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

/// Takes complete frames from a connection's buffer.
fn take_frames(connection: &mut Connection, max: usize) -> (Frames, End) {
    let (mut taken, mut count) = (0, 0);
    let end = loop {
        let rest = &connection.buffer[taken..];
        match protocol::frame_head(rest, max) {
            _ if count >= BATCH_FRAMES => break End::Incomplete(None),
            FrameHead::Incomplete => break End::Incomplete(frame_len(rest)),
            FrameHead::TooLarge(length) => {
                let message = format!("a frame of {length} bytes exceeds the limit of {max}");
                break End::Fatal(Response::Error { code: ErrorCode::TooLarge, message });
            }
            FrameHead::Complete(length) => {
                taken += 4 + length;
                count += 1;
            }
        }
    };
    let frames = if taken == 0 { BytesMut::new() } else { connection.take(taken) };
    (Frames::new(frames), end)
}

/// Returns the length of the frame that a buffer begins with, its head included.
fn frame_len(buffer: &[u8]) -> Option<usize> {
    let length = buffer.first_chunk::<4>()?;
    Some(4 + u32::from_be_bytes(*length) as usize)
}

/// Runs requests in order and encodes their responses, as many as fit one output. Returns it with the
/// frames that are left. Nothing: a request panicked.
async fn answer(session: &mut Session, mut frames: Frames) -> Option<(Vec<u8>, Frames)> {
    if session.reads_without_blocking() {
        let output = session.run_inline(&mut frames);
        if !output.is_empty() {
            if !frames.is_empty() {
                tokio::task::yield_now().await;
            }
            return Some((output, frames));
        }
    }
    let mut taken = session.clone();
    let ran = tokio::task::spawn_blocking(move || {
        let output = taken.run(&mut frames);
        (taken, output, frames)
    });
    let (returned, output, rest) = ran.await.ok()?;
    *session = returned;
    Some((output, rest))
}
