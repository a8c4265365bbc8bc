//! `/containerLogs`: logs of containers.

use std::{sync::Arc, time::Duration};

use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::jiff::{Timestamp, ToSpan};
use tokio::{sync::mpsc, time::timeout};

use super::{Body, response, text};
use crate::{
    context::{Node, Runs},
    logs::{self, Options},
};

/// Chunks that wait for a slow reader.
const QUEUE: usize = 4;
/// Wait for the first output of a container that has just been started.
const START: Duration = Duration::from_millis(500);

/// Responds with the log of a container.
pub(super) async fn answer(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &str,
) -> Response<Body> {
    let Some(entry) = node.directory.get(namespace, pod) else {
        return text(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist\n"));
    };
    let Some(runs) = entry.containers.get(container).cloned() else {
        return text(StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {pod:?}\n"));
    };
    let (options, previous) = match parse(query) {
        Ok(parsed) => parsed,
        Err(error) => return text(StatusCode::BAD_REQUEST, error),
    };
    let run = match (runs.current, previous) {
        (Some(0), true) => {
            let message = format!("previous terminated container {container:?} in pod {pod:?} not found");
            return text(StatusCode::BAD_REQUEST, message);
        }
        (Some(run), true) => run - 1,
        (Some(run), false) => run,
        (None, _) => {
            let message = format!(
                "container {container:?} in pod {pod:?} is waiting to start: {}",
                waiting(&entry.pod, container)
            );
            return text(StatusCode::BAD_REQUEST, message);
        }
    };
    let path = node.log_path(namespace, pod, &entry.uid, container, run);
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let (node, namespace, pod, container) =
        (node.clone(), namespace.to_owned(), pod.to_owned(), container.to_owned());
    let uid = entry.uid.clone();
    tokio::spawn(async move {
        let is_live = || {
            let entry = node.directory.get(&namespace, &pod).filter(|entry| entry.uid == uid);
            let runs: Option<Runs> = entry.and_then(|entry| entry.containers.get(&container).cloned());
            runs.is_some_and(|runs| runs.current == Some(run) && runs.live.is_some())
        };
        logs::stream(&path, &options, is_live, sender).await;
    });
    // The headers of a log that does not come yet go out all the same.
    let first = timeout(START, receiver.recv()).await;
    let first = match first {
        Ok(Some(Err(error))) if error.kind() != std::io::ErrorKind::NotFound => {
            return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        }
        Ok(Some(Ok(chunk))) => Some(chunk),
        _ => None,
    };
    let rest = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let chunks = futures_util::StreamExt::chain(stream::iter(first.map(Ok)), rest);
    let frames = futures_util::StreamExt::map(chunks, |chunk| chunk.map(Frame::data));
    response(StatusCode::OK, "text/plain", BodyExt::boxed_unsync(StreamBody::new(frames)))
}

fn waiting(pod: &k8s_openapi::api::core::v1::Pod, container: &str) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let all =
        [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    let found = all.into_iter().flatten().flatten().find(|status| status.name == container);
    let waiting = found.and_then(|status| status.state).and_then(|state| state.waiting);
    match waiting.and_then(|waiting| waiting.reason).as_deref() {
        Some("ErrImagePull") => "trying and failing to pull image".to_owned(),
        Some("ImagePullBackOff") => "image can't be pulled".to_owned(),
        Some(reason) => reason.to_owned(),
        None => "ContainerCreating".to_owned(),
    }
}

fn parse(query: &str) -> Result<(Options, bool), String> {
    let mut options = Options::default();
    let mut previous = false;
    let is_true = |value: &str| matches!(value, "true" | "1" | "");
    for (name, value) in super::websocket::query_pairs(query) {
        let number = || value.parse::<u64>().map_err(|_| format!("invalid {name}: {value:?}"));
        match name.as_str() {
            "follow" => options.follow = is_true(&value),
            "previous" => previous = is_true(&value),
            "timestamps" => options.timestamps = is_true(&value),
            "tailLines" => options.tail = Some(number()?),
            "limitBytes" => options.limit_bytes = Some(number()?),
            "sinceSeconds" => {
                let seconds = i64::try_from(number()?).unwrap_or(i64::MAX / 2).min(1 << 40);
                options.since = Timestamp::now().checked_sub(seconds.seconds()).ok();
            }
            "sinceTime" => {
                options.since = Some(value.parse().map_err(|_| format!("invalid sinceTime: {value:?}"))?);
            }
            "stream" if value != "All" && !value.is_empty() => options.stream = Some(value.to_lowercase()),
            _ => {}
        }
    }
    Ok((options, previous))
}
