//! Authentication of service account tokens.

use orlop_api::{object_meta, user::UserInfo};
use serde_json::Value;

use super::issuer::Issuer;
use crate::{object::now, storage::ObjectStore};

/// Returns the user of a token, if its service account still exists.
pub(crate) async fn authenticate(issuer: &Issuer, objects: &ObjectStore, token: &str) -> Option<UserInfo> {
    let claims = issuer.check(token, now().unix_seconds)?;
    let text = |path: &str| claims.pointer(path).and_then(Value::as_str);
    let namespace = text("/kubernetes.io/namespace")?;
    let name = text("/kubernetes.io/serviceaccount/name")?;
    let kinds = objects.registry.kinds();
    let account = objects.find(kinds.get("", "v1", "serviceaccounts")?, namespace, name).await.ok()??;
    let account = account.as_stored().ok()?;
    if text("/kubernetes.io/serviceaccount/uid") != Some(object_meta::text(object_meta::of(&account), "uid"))
    {
        return None;
    }
    Some(UserInfo::service_account(namespace, name))
}
