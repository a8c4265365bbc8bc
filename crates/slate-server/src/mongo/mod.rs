//! The MongoDB wire protocol, so that drivers of any language work unmodified.
//!
//! `message` reads and writes messages, `crate::scram` authenticates, `commands` runs each command on the engine.
//! A namespace is `database.collection`; Slate's own collections are in the database `slate`.

mod commands;
mod error;
mod message;
mod session;

use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::watch,
};

use self::{
    message::{Head, Message},
    session::Session,
};
use crate::{context::SharedContext, net::Stream};

/// Time that a client has to take a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 32 << 10;

/// Serves one connection until it ends, is idle for too long, or the server stops.
pub(crate) async fn serve(
    mut stream: Box<dyn Stream>,
    context: SharedContext,
    mut stop: watch::Receiver<bool>,
    idle: Duration,
) {
    let mut session = Session::new(context);
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        match message::head(&buffer) {
            Head::Incomplete => {}
            Head::Invalid(reason) => {
                tracing::debug!(reason, "connection ended");
                return;
            }
            Head::Complete(length) => {
                let bytes = buffer.split_to(length);
                let message = match Message::parse(&bytes) {
                    Ok(message) => message,
                    Err(error) => {
                        tracing::debug!(%error, "connection ended");
                        return;
                    }
                };
                let ran = tokio::task::spawn_blocking(move || {
                    let output = session.run(message);
                    (session, output)
                });
                let Ok((returned, output)) = ran.await else { return };
                session = returned;
                if let Some(output) = output {
                    let written = tokio::time::timeout(WRITE_TIMEOUT, async {
                        stream.write_all(&output).await?;
                        stream.flush().await
                    });
                    if !matches!(written.await, Ok(Ok(()))) {
                        return;
                    }
                }
                if *stop.borrow() {
                    break;
                }
                continue;
            }
        }
        buffer.reserve(READ_BYTES);
        tokio::select! {
            read = tokio::time::timeout(idle, stream.read_buf(&mut buffer)) => match read {
                Ok(Ok(count)) if count > 0 => {}
                _ => return,
            },
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    let _ = stream.shutdown().await;
}
