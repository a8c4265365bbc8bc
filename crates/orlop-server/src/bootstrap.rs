//! What a cluster has from its first moment.

use http::Request;
use serde_json::{Value, json};

use crate::{User, chain::Chain};

/// Namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing. Goes through the chain, so that these objects are like all others.
pub async fn bootstrap(chain: &Chain) -> Result<(), String> {
    for name in NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create(chain, "/api/v1/namespaces", &namespace).await?;
    }
    Ok(())
}

/// Creates an object unless it is there.
async fn create(chain: &Chain, path: &str, object: &Value) -> Result<(), String> {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::USER_AGENT, "orlop")
        .body(http_body_util::Full::new(bytes::Bytes::from(object.to_string())))
        .map_err(|error| error.to_string())?;
    let server = User::authenticated("system:apiserver", ["system:masters".to_owned()]);
    let response = chain.answer(request, Some(&server)).await;
    match response.status().as_u16() {
        200..300 | 409 => Ok(()),
        code => Err(format!("{path} answered {code}")),
    }
}
