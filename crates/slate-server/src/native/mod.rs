//! Slate's protocol: a connection's frames, in order.

mod execute;
mod session;
mod translate;

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use slate_client::protocol::{self, ErrorCode, FrameHead, Request, Response};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
};

use crate::{context::SharedContext, net::Stream};

/// Frames answered at once. More wait in the socket.
const BATCH_FRAMES: usize = 1024;
/// Time that a client has to take a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Buffer to read into.
const READ_BYTES: usize = 32 << 10;

/// Serves one connection until it ends, is idle for too long, or the server stops.
pub(crate) async fn serve(
    mut stream: Box<dyn Stream>,
    context: SharedContext,
    mut stop: watch::Receiver<bool>,
    idle: Duration,
) {
    let mut session = session::Session::new(Arc::clone(&context));
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        let (requests, fatal) = take_requests(&mut buffer, context.frame_len_max);
        if !requests.is_empty() {
            let Some((returned, output)) = answer(session, requests).await else { return };
            session = returned;
            let written = tokio::time::timeout(WRITE_TIMEOUT, async {
                stream.write_all(&output).await?;
                stream.flush().await
            });
            if !matches!(written.await, Ok(Ok(()))) || session.is_refused() {
                return;
            }
            if fatal.is_none() {
                // More frames may be complete already.
                if *stop.borrow() {
                    break;
                }
                continue;
            }
        }
        if let Some(response) = fatal {
            let mut output = Vec::new();
            if protocol::encode_frame(&response, &mut output).is_ok() {
                let _ = tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(&output)).await;
            }
            break;
        }
        buffer.reserve(READ_BYTES);
        tokio::select! {
            read = tokio::time::timeout(idle, stream.read_buf(&mut buffer)) => match read {
                Ok(Ok(count)) if count > 0 => {}
                _ => return,
            },
            // Between requests nothing is lost by ending.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    let _ = stream.shutdown().await;
}

/// Takes complete requests from a buffer, and the answer after which the connection ends, if one is bad.
fn take_requests(buffer: &mut BytesMut, max: usize) -> (Vec<Result<Request, Response>>, Option<Response>) {
    let mut requests = Vec::new();
    while requests.len() < BATCH_FRAMES {
        match protocol::frame_head(buffer, max) {
            FrameHead::Incomplete => break,
            FrameHead::TooLarge(length) => {
                let message = format!("a frame of {length} bytes exceeds the limit of {max}");
                return (requests, Some(Response::Error { code: ErrorCode::TooLarge, message }));
            }
            FrameHead::Complete(length) => {
                let frame = buffer.split_to(4 + length);
                requests.push(protocol::decode::<Request>(&frame[4..]).map_err(|error| Response::Error {
                    code: ErrorCode::Invalid,
                    message: format!("not a request: {error}"),
                }));
            }
        }
    }
    (requests, None)
}

/// Runs requests in order and encodes their responses. Nothing: a request panicked.
async fn answer(
    mut session: session::Session,
    requests: Vec<Result<Request, Response>>,
) -> Option<(session::Session, Vec<u8>)> {
    let quick =
        requests.iter().all(|request| matches!(request, Ok(Request::FindById { .. } | Request::Ping)));
    if quick && session.is_in_memory() {
        let output = session.run(requests);
        return Some((session, output));
    }
    let ran = tokio::task::spawn_blocking(move || {
        let output = session.run(requests);
        (session, output)
    });
    ran.await.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_frames_fail_without_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..5)) {
            let mut buffer = BytesMut::new();
            for frame in &frames {
                buffer.extend_from_slice(&(frame.len() as u32).to_be_bytes());
                buffer.extend_from_slice(frame);
            }
            let (requests, fatal) = take_requests(&mut buffer, 1 << 20);
            prop_assert_eq!(requests.len(), frames.len());
            prop_assert!(fatal.is_none() && buffer.is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_exceed_the_frame_limit(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(bytes.as_slice());
            let (_, fatal) = take_requests(&mut buffer, 100);
            if fatal.is_none() {
                // What remains waits for at most one frame.
                prop_assert!(buffer.len() < 104);
            }
        }
    }
}
