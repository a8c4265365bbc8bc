//! Bodies that hold the seats of their request, or its place among requests in flight, until they are complete.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use super::body::{Body, BodyWrapper, PolledFrame};
use http_body::Body as _;

/// Time after which a client that reads nothing gives back its seats: the server does no work for it, and others wait
/// for that long.
const PATIENCE: Duration = Duration::from_millis(20);

/// A streamed body with what its request occupies, which dropping releases.
#[derive(Debug)]
pub(crate) struct HeldBody<P> {
    body: Body,
    held: Arc<Held<P>>,
}

#[derive(Debug)]
struct Held<P> {
    permit: Mutex<Option<P>>,
    /// True if the client has read something since this was last checked.
    has_progressed: AtomicBool,
}

impl<P> Held<P> {
    fn release(&self) {
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(permit);
    }

    fn is_released(&self) -> bool {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl<P: fmt::Debug + Send + 'static> HeldBody<P> {
    /// Holds a permit until a body is complete; of a watch, until it is initialized. A complete body holds none.
    pub(crate) fn hold(body: Body, permit: P) -> Body {
        let is_over = match &body {
            Body::Full(_) => true,
            Body::Watch(events) => events.is_initialized(),
            Body::Stream(_) | Body::Wrapped(_) => false,
        };
        if is_over {
            drop(permit);
            return body;
        }
        let held = Arc::new(Held { permit: Mutex::new(Some(permit)), has_progressed: AtomicBool::new(true) });
        let watched = Arc::downgrade(&held);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PATIENCE).await;
                let Some(held) = watched.upgrade() else { return };
                if held.is_released() {
                    return;
                }
                if !held.has_progressed.swap(false, Relaxed) {
                    held.release();
                    return;
                }
            }
        });
        Body::Wrapped(Box::new(Self { body, held }))
    }
}

impl<P: fmt::Debug + Send + 'static> BodyWrapper for HeldBody<P> {
    fn inner_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.held.has_progressed.store(true, Relaxed);
        let is_over = match &polled {
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {
                matches!(&self.body, Body::Watch(events) if events.is_initialized())
            }
            Poll::Ready(_) => true,
        };
        if is_over {
            self.held.release();
        }
        polled
    }
}
