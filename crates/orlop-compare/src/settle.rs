//! Waits for what servers do after their answer: controllers establish and remove definitions, and set conditions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::{
    request::Request,
    server::{Answer, Server},
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FLOW_SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const POLL: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(30);
/// Time that the informers of a kube-apiserver take, which nothing in its API shows.
const INFORMERS: Duration = Duration::from_secs(2);

/// Waits until a write has taken effect.
pub(crate) async fn after(server: &Server, request: &Request, answer: &Answer) -> Result<()> {
    let is_write = request.method != "GET" && answer.code < 300 && !request.path.contains("dryRun");
    if is_write && request.method == "POST" && request.path.starts_with(FLOW_SCHEMAS) {
        return until_condition(server, answer).await;
    }
    if !is_write || !request.path.starts_with(DEFINITIONS) {
        return Ok(());
    }
    let Some(name) = answer.body.pointer("/metadata/name").or_else(|| answer.body.pointer("/details/name"))
    else {
        return Ok(());
    };
    let look = Request::new("settle", "GET", format!("{DEFINITIONS}/{}", name.as_str().unwrap_or_default()));
    let until = Instant::now() + DEADLINE;
    loop {
        let seen = server.send(&look).await?;
        let is_gone = seen.code == 404;
        if is_gone || (request.method != "DELETE" && is_established(&seen.body)) {
            break;
        }
        if Instant::now() > until {
            bail!("{} did not take effect", request.summary());
        }
        tokio::time::sleep(POLL).await;
    }
    tokio::time::sleep(INFORMERS).await;
    Ok(())
}

/// Waits until a FlowSchema has a condition.
async fn until_condition(server: &Server, answer: &Answer) -> Result<()> {
    let name = answer.body.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let look = Request::new("settle", "GET", format!("{FLOW_SCHEMAS}/{name}"));
    let until = Instant::now() + DEADLINE;
    while server.send(&look).await?.body.pointer("/status/conditions/0").is_none() {
        if Instant::now() > until {
            bail!("{name} has no condition");
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}
