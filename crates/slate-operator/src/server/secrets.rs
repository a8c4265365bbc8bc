//! Secrets of a server, made once and then left alone.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::json;

use super::objects;
use crate::{api::Server, context::Error};

/// Bytes of a digest that are shown.
const DIGEST_BYTES: usize = 16;
/// Bytes of a token before encoding.
const TOKEN_BYTES: usize = 32;

/// Makes the Secret with the token unless it exists. Returns a digest of it: a server reads its token at start
/// only, so another token means another pod.
pub(super) async fn ensure_token(server: &Server, secrets: Api<Secret>) -> Result<String, Error> {
    let name = format!("{}-token", server.name_any());
    if let Some(secret) = secrets.get_opt(&name).await? {
        return Ok(digest(&secret));
    }
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let token = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    Ok(digest(&create(server, &secrets, &name, "Opaque", &[("token", token)]).await?))
}

/// Makes the Secret with the certificate unless it exists. A server follows its files, so no pod needs to be
/// replaced when it changes.
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
    create(server, &secrets, &name, "kubernetes.io/tls", &fields).await.map(drop)
}

async fn create(
    server: &Server,
    secrets: &Api<Secret>,
    name: &str,
    kind: &str,
    fields: &[(&str, String)],
) -> Result<Secret, Error> {
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
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(secrets.get(name).await?),
        created => Ok(created?),
    }
}

/// Returns a digest of a Secret's content.
fn digest(secret: &Secret) -> String {
    let mut content = Vec::new();
    for (field, value) in secret.data.iter().flatten() {
        content.extend_from_slice(field.as_bytes());
        content.push(0);
        content.extend_from_slice(&value.0);
        content.push(0);
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &content);
    digest.as_ref().iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect()
}
