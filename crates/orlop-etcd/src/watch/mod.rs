//! The Watch service: many watches on one stream.
//!
//! A stream has a session, which takes its requests one by one, and each watch has a task, which turns what
//! the store's watcher brings into responses. All of them put their responses into the stream's one bounded
//! queue; a client that does not read holds up its own watches and nobody else, since a store's watcher that
//! is not asked costs nothing but its place in history.

mod fragment;
mod one;
mod session;

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

/// Responses that wait for the client to read.
const QUEUE: usize = 8;

/// Where responses go. An error ends the stream.
type Responses = mpsc::Sender<Result<WatchResponse, Status>>;

/// Streams of changes.
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
        let (responses, queue) = mpsc::channel(QUEUE);
        let session = session::Session::new(self.node.clone(), responses);
        tokio::spawn(session.run(request.into_inner()));
        let stopped = futures_util::stream::once(self.node.clone().stopped());
        let stopped = stopped.map(|()| Some(Err(STOPPED.into())));
        let queue = ReceiverStream::new(queue).map(Some).chain(futures_util::stream::once(async { None }));
        // Whatever ends first ends the stream, so that an open watch does not hold up a shutdown.
        let mut over = false;
        let both = futures_util::stream::select(queue, stopped).take_while(move |item| {
            let go_on = !over && item.is_some();
            over |= matches!(item, Some(Err(_)));
            std::future::ready(go_on)
        });
        Ok(Response::new(Box::pin(both.filter_map(std::future::ready))))
    }
}
