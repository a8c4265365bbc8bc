//! The access control list of a bucket: a canned one by name, or grants.

use serde_json::Value;

use crate::{fields::child, kind::Object};

/// Fields of the spec, with the headers that set them.
const FIELDS: [(&str, &str); 6] = [
    ("acl", "x-amz-acl"),
    ("grantFullControl", "x-amz-grant-full-control"),
    ("grantRead", "x-amz-grant-read"),
    ("grantReadACP", "x-amz-grant-read-acp"),
    ("grantWrite", "x-amz-grant-write"),
    ("grantWriteACP", "x-amz-grant-write-acp"),
];

/// A permission, and who has it: `id=…` or `uri=…`.
type Grant = (String, String);

const ALL_USERS: &str = "uri=http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "uri=http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const LOG_DELIVERY: &str = "uri=http://acs.amazonaws.com/groups/s3/LogDelivery";

/// True if the object sets the list.
pub(super) fn is_given(object: &Object) -> bool {
    FIELDS.iter().any(|(field, _)| object.spec(field).is_some())
}

/// Returns the headers that set the list. Without any in the spec it is private.
pub(super) fn headers(object: &Object) -> Vec<(String, String)> {
    let given = FIELDS.iter().filter_map(|(field, header)| Some((*header, object.spec(field)?)));
    let mut all: Vec<_> = given.map(|(header, value)| (header.to_owned(), value.to_owned())).collect();
    if all.is_empty() {
        all.push(("x-amz-acl".to_owned(), "private".to_owned()));
    }
    all
}

/// Reads a list as lines of a permission and who has it, with the owner by that name.
pub(super) fn observed(document: &roxmltree::Document<'_>) -> Value {
    let text = |node: roxmltree::Node<'_, '_>, name: &str| {
        child(node, name).and_then(|node| node.text()).unwrap_or_default().to_owned()
    };
    let owner = child(document.root_element(), "Owner").map(|owner| text(owner, "ID")).unwrap_or_default();
    let grants = document.descendants().filter(|node| node.tag_name().name() == "Grant");
    let lines = grants.filter_map(|grant| {
        let grantee = child(grant, "Grantee")?;
        let (id, uri) = (text(grantee, "ID"), text(grantee, "URI"));
        let who = if uri.is_empty() { format!("id={id}") } else { format!("uri={uri}") };
        let who = if id == owner && uri.is_empty() { "owner".to_owned() } else { who };
        Some(Value::String(format!("{} {who}", text(grant, "Permission"))))
    });
    lines.collect()
}

/// True if a list that was read is the one that the object wants.
pub(super) fn matches_desired(object: &Object, observed: &Value) -> bool {
    let lines = observed.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut seen: Vec<Grant> =
        lines.filter_map(|line| line.split_once(' ')).map(|(what, who)| (what.into(), who.into())).collect();
    seen.sort();
    let grants = FIELDS.iter().skip(1).any(|(field, _)| object.spec(field).is_some());
    let desired = if grants { granted(object) } else { canned(object.spec("acl").unwrap_or("private")) };
    match desired {
        Some(mut desired) => {
            desired.sort();
            let owned = |grants: &[Grant]| -> Vec<Grant> {
                let is_owners = |grant: &&Grant| grant.1 != "owner";
                grants.iter().filter(is_owners).cloned().collect()
            };
            // The owner may name itself by its id in a grant.
            desired == seen || (grants && owned(&desired) == owned(&seen))
        }
        // AWS does not return it: the last applied value counts.
        None => true,
    }
}

/// Returns the grants of a canned list, if AWS shows them in a form that can be compared.
fn canned(name: &str) -> Option<Vec<Grant>> {
    let more: &[(&str, &str)] = match name {
        "private" => &[],
        "public-read" => &[("READ", ALL_USERS)],
        "public-read-write" => &[("READ", ALL_USERS), ("WRITE", ALL_USERS)],
        "authenticated-read" => &[("READ", AUTHENTICATED)],
        "log-delivery-write" => &[("WRITE", LOG_DELIVERY), ("READ_ACP", LOG_DELIVERY)],
        _ => return None,
    };
    let all = [("FULL_CONTROL", "owner")].iter().chain(more);
    Some(all.map(|(what, who)| ((*what).to_owned(), (*who).to_owned())).collect())
}

/// Returns the grants of the spec. An address of electronic mail comes back as an id, so it cannot be compared.
fn granted(object: &Object) -> Option<Vec<Grant>> {
    let mut all = Vec::new();
    let permissions = ["FULL_CONTROL", "READ", "READ_ACP", "WRITE", "WRITE_ACP"];
    for ((field, _), permission) in FIELDS.iter().skip(1).zip(permissions) {
        for who in object.spec(field).into_iter().flat_map(|text| text.split(',')) {
            let who = who.trim().replace('"', "");
            if who.to_lowercase().starts_with("emailaddress") {
                return None;
            }
            all.push((permission.to_owned(), who));
        }
    }
    Some(all)
}
