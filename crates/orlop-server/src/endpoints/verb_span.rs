//! The span of a verb, with Kinm's attributes.

use std::{sync::Arc, time::Instant};

use http::Response;
use orlop_api::status::Status;
use orlop_trace::{Active, Value};

use super::{Request, dispatch};
use crate::{auth::Access, http::body::Body, request::Verb};

/// Runs the verb of a request below a span, if there is one. A verb may run on another thread than its request.
pub(super) async fn dispatch_in(
    span: Option<Active>,
    access: Arc<Access>,
    request: Request,
) -> Result<Response<Body>, Status> {
    let Some(parent) = span else { return dispatch(access, request).await };
    let mut span = parent.child(name(&request.attributes.verb), Instant::now());
    for (key, value) in attributes(&request) {
        span.set(key, value);
    }
    // Boxed: a request that is not traced should not be larger for it.
    let answered = span.active().scope(Box::pin(dispatch(access, request))).await;
    if let Err(status) = &answered {
        span.fail(status.message.clone());
    }
    answered
}

fn name(verb: &Verb) -> &'static str {
    match verb {
        Verb::Get => "Get",
        Verb::List => "List",
        Verb::Watch => "Watch",
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::Patch => "Patch",
        Verb::Delete => "Delete",
        Verb::DeleteCollection => "DeleteCollection",
        Verb::Proxy | Verb::Other(_) => "Connect",
    }
}

/// Returns the attributes of a verb: kind and namespace, and the options of a list or watch. Never names and selectors.
fn attributes(request: &Request) -> Vec<(&'static str, Value)> {
    let (attributes, query) = (&request.attributes, &request.query);
    let mut list = vec![("gvk", Value::from(request.kind.gvk.to_string()))];
    if !attributes.namespace.is_empty() {
        list.push(("namespace", attributes.namespace.clone().into()));
    }
    if matches!(attributes.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        let has = |name: &str| Value::from(!query.text(name).is_empty());
        list.extend([
            ("hasResourceVersion", has("resourceVersion")),
            ("hasContinue", has("continue")),
            ("limit", query.number("limit").ok().flatten().unwrap_or(0).into()),
            ("hasLabelSelector", has("labelSelector")),
            ("hasFieldSelector", has("fieldSelector")),
            ("allowWatchBookmarks", query.switch("allowWatchBookmarks").unwrap_or(false).into()),
            ("hasResourceVersionMatch", has("resourceVersionMatch")),
        ]);
        if let Some(initial) = query.switch("sendInitialEvents") {
            list.push(("sendInitialEvents", initial.into()));
        }
    }
    list
}
