//! Bodies that hold the seats of their request until they are complete.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http_body::Body as _;
use orlop_flow_control::Seats;

use super::body::{Body, BodyWrapper, PolledFrame};

/// Time after which a client that reads nothing gives back its seats: the server does no work for it, and others wait
/// for that long.
const PATIENCE: Duration = Duration::from_millis(20);

/// A streamed body with the seats of its request.
#[derive(Debug)]
pub(crate) struct HeldBody {
    body: Body,
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    seats: Mutex<Option<Seats>>,
    /// True if the client has read something since this was last checked.
    has_progressed: AtomicBool,
}

impl Held {
    fn release(&self) {
        let seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(seats);
    }

    fn is_released(&self) -> bool {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl HeldBody {
    /// Holds seats until a body is complete; of a watch, until it is initialized. A complete body holds none.
    pub(crate) fn hold(body: Body, seats: Seats) -> Body {
        let is_over = match &body {
            Body::Full(_) => true,
            Body::Watch(events) => events.is_initialized(),
            Body::Stream(_) | Body::Wrapped(_) => false,
        };
        if is_over {
            drop(seats);
            return body;
        }
        let held = Arc::new(Held { seats: Mutex::new(Some(seats)), has_progressed: AtomicBool::new(true) });
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

impl BodyWrapper for HeldBody {
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
