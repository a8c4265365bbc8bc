//! The Watch service: many watches on one stream.
//!
//! A stream has a session, which handles its requests in order. Each watch has a task, which converts the store's events
//! to responses. All of them send to the stream's one bounded queue. A client that does not read exerts back-pressure on
//! its own watches only: an idle watcher of the store costs nothing but its position in the history.

mod fragment;
mod session;
mod task;

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    errors::STOPPED,
    node::Node,
    pb::etcdserverpb::{WatchRequest, WatchResponse, watch_server::Watch},
};

/// Responses queued for the client.
const QUEUE_RESPONSES: usize = 8;

/// Implements `etcdserverpb.Watch`.
#[derive(Clone, Debug)]
pub(crate) struct WatchService {
    pub(crate) node: Arc<Node>,
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, queue) = mpsc::channel(QUEUE_RESPONSES);
        let session = session::Session::new(self.node.clone(), responses);
        tokio::spawn(session.run(request.into_inner()));
        let stopped = futures_util::stream::once(self.node.clone().stopped());
        let stopped = stopped.map(|()| Some(Err(STOPPED.into())));
        let queue = ReceiverStream::new(queue).map(Some).chain(futures_util::stream::once(async { None }));
        // Ends with the session or on shutdown, so that an open watch does not delay the drain.
        let mut ended = false;
        let merged = futures_util::stream::select(queue, stopped).take_while(move |item| {
            let proceed = !ended && item.is_some();
            ended |= matches!(item, Some(Err(_)));
            std::future::ready(proceed)
        });
        Ok(Response::new(Box::pin(merged.filter_map(std::future::ready))))
    }
}
