//! The MongoDB wire protocol, so that drivers of any language work unmodified.
//!
//! `message` reads and writes messages, `crate::scram` authenticates, `commands` runs each command on the engine.
//! A namespace is `database.collection`; Slate's own collections are in the database `slate`.

mod commands;
mod error;
mod message;
mod session;

use std::sync::Arc;

use orlop_net::Stream;
use tokio::sync::watch;

use self::{
    message::{Head, Message},
    session::Session,
};
use crate::{connection::Connection, context::SharedContext};

/// Serves one connection until it ends, is idle or slow for too long, or the server stops.
pub(crate) async fn serve(stream: Stream, context: SharedContext, stop: watch::Receiver<bool>) {
    let mut connection = Connection::new(stream, Arc::clone(&context.limits), stop);
    let mut session = Session::new(context);
    loop {
        let length = match message::head(&connection.buffer, session.message_len_max()) {
            Head::Incomplete(length) => {
                if !connection.read_more(length).await {
                    break;
                }
                continue;
            }
            Head::Invalid(reason) => {
                tracing::debug!(reason, "connection ended");
                return;
            }
            Head::Complete(length) => length,
        };
        let message = match Message::parse(&connection.take(length)) {
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
        if let Some(output) = output
            && !connection.send(&output).await
        {
            return;
        }
        if connection.is_stopping() {
            break;
        }
    }
    connection.close().await;
}
