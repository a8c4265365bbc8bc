//! Secrets of a server, made once and then left alone.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::objects;
use crate::{api::Server, context::Error};

/// Bytes of a token before encoding.
const TOKEN_BYTES: usize = 32;

/// Makes the Secret with the token unless it exists.
pub(super) async fn ensure_token(server: &Server, secrets: Api<Secret>) -> Result<(), Error> {
    let name = format!("{}-token", server.name_any());
    if secrets.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let token = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    create(server, &secrets, &name, "Opaque", &[("token", token)]).await
}

/// Makes the Secret with the certificate unless it exists.
pub(super) async fn ensure_tls(server: &Server, secrets: Api<Secret>) -> Result<(), Error> {
    let name = format!("{}-tls", server.name_any());
    if secrets.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let (server_name, namespace) = (server.name_any(), server.namespace().unwrap_or_default());
    let names = vec![
        format!("{server_name}.{namespace}.svc.cluster.local"),
        format!("{server_name}.{namespace}.svc"),
        format!("{server_name}.{namespace}"),
        server_name,
        "localhost".to_owned(),
    ];
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| Error::Secret(error.to_string()))?;
    let certificate = made.cert.pem();
    let fields = [
        ("ca.crt", certificate.clone()),
        ("tls.crt", certificate),
        ("tls.key", made.signing_key.serialize_pem()),
    ];
    create(server, &secrets, &name, "kubernetes.io/tls", &fields).await
}

async fn create(
    server: &Server,
    secrets: &Api<Secret>,
    name: &str,
    kind: &str,
    fields: &[(&str, String)],
) -> Result<(), Error> {
    let data: serde_json::Map<String, serde_json::Value> =
        fields.iter().map(|(field, value)| ((*field).to_owned(), json!(value))).collect();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": objects::metadata(server, name),
        "type": kind,
        "stringData": data,
    });
    let secret: Secret = serde_json::from_value(secret).map_err(|error| Error::Secret(error.to_string()))?;
    match secrets.create(&PostParams::default(), &secret).await {
        // Made by another reconciliation meanwhile.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => Ok(result.map(drop)?),
    }
}
