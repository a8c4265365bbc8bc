//! iam Role.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use crate::{
    client::{Failure, IAM, Result, Session, optional, xml_text},
    fields::{Case, Difference, from_xml, parse, to_json},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Reference, Tags, aws_tags, differs, tag_changes},
    policy,
};

#[derive(Debug)]
pub(crate) struct Role;

/// Brings tags of a role or a policy in line: operations to remove and to add them, and the parameter that names it.
pub(super) async fn sync_tags(
    aws: &Session,
    (untag, tag): (&'static str, &'static str),
    (parameter, name): (&str, &str),
    object: &Object,
    observed: &Observed,
) -> Result<()> {
    let (add, remove) = tag_changes(object, observed);
    if !remove.is_empty() {
        aws.query(&IAM, untag, json!({parameter: name, "TagKeys": remove})).await?;
    }
    if !add.is_empty() {
        aws.query(&IAM, tag, json!({parameter: name, "Tags": aws_tags(&add)})).await?;
    }
    Ok(())
}

static DESCRIPTOR: Descriptor = Descriptor {
    service: &IAM,
    kind: "Role",
    plural: "roles",
    spec: LazyLock::new(|| {
        parse(
            "assumeRolePolicyDocument! description~ inlinePolicies~{} maxSessionDuration:i name! path
             permissionsBoundary~ permissionsBoundaryRef@ policies~[] policyRefs[]@ tags~[]{key value}",
        )
    }),
    status: LazyLock::new(|| parse("createDate:t roleID roleLastUsed{lastUsedDate:t region}")),
    adoption: &[("name", "spec.name")],
    identity: &["name", "path"],
    references: &[
        Reference {
            field: "permissionsBoundary",
            reference: "permissionsBoundaryRef",
            target: ("iam", "Policy"),
            value: "status.ackResourceMetadata.arn",
            prefix: "",
            required: false,
            list: false,
        },
        Reference {
            field: "policies",
            reference: "policyRefs",
            target: ("iam", "Policy"),
            value: "status.ackResourceMetadata.arn",
            prefix: "",
            required: false,
            list: true,
        },
    ],
    terminal: &["InvalidInput", "MalformedPolicyDocument", "ValidationError"],
    late: &["maxSessionDuration", "path"],
    tags: Tags::List("tags"),
    resync: None,
    actions: &[
        "iam:GetRole",
        "iam:CreateRole",
        "iam:UpdateRole",
        "iam:DeleteRole",
        "iam:UpdateAssumeRolePolicy",
        "iam:ListAttachedRolePolicies",
        "iam:AttachRolePolicy",
        "iam:DetachRolePolicy",
        "iam:ListRolePolicies",
        "iam:GetRolePolicy",
        "iam:PutRolePolicy",
        "iam:DeleteRolePolicy",
        "iam:PutRolePermissionsBoundary",
        "iam:DeleteRolePermissionsBoundary",
        "iam:ListRoleTags",
        "iam:TagRole",
        "iam:UntagRole",
        "iam:ListInstanceProfilesForRole",
    ],
    columns: &[],
};

/// Decodes a document, which IAM sends percent-encoded.
pub(super) fn decode_document(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the texts of all elements of a name.
pub(super) fn texts(document: &str, name: &str) -> Vec<String> {
    let Ok(document) = roxmltree::Document::parse(document) else { return Vec::new() };
    let found = document.descendants().filter(|node| node.tag_name().name() == name);
    found.map(|node| node.text().unwrap_or_default().to_owned()).collect()
}

/// Reads every page of a list. IAM marks more with `IsTruncated` and a `Marker`.
pub(super) async fn all_pages(
    aws: &Session,
    operation: &'static str,
    mut parameters: Value,
) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = aws.query(&IAM, operation, parameters.clone()).await?;
        let more = xml_text(&page, "IsTruncated").as_deref() == Some("true");
        let marker = xml_text(&page, "Marker");
        pages.push(page);
        match marker {
            Some(marker) if more && pages.len() < 100 => parameters["Marker"] = json!(marker),
            _ => return Ok(pages),
        }
    }
}

async fn attached(aws: &Session, name: &str) -> Result<Vec<String>> {
    let pages = all_pages(aws, "ListAttachedRolePolicies", json!({"RoleName": name})).await?;
    Ok(pages.iter().flat_map(|page| texts(page, "PolicyArn")).collect())
}

async fn inline(aws: &Session, name: &str) -> Result<Map<String, Value>> {
    let pages = all_pages(aws, "ListRolePolicies", json!({"RoleName": name})).await?;
    let mut documents = Map::new();
    for policy in pages.iter().flat_map(|page| texts(page, "member")) {
        let parameters = json!({"RoleName": name, "PolicyName": policy});
        if let Some(answer) = optional(aws.query(&IAM, "GetRolePolicy", parameters).await, &[])? {
            let document = xml_text(&answer, "PolicyDocument").unwrap_or_default();
            documents.insert(policy, json!(decode_document(&document)));
        }
    }
    Ok(documents)
}

#[async_trait]
impl Kind for Role {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let name = object.need("name");
        let Some(answer) = optional(aws.query(&IAM, "GetRole", json!({"RoleName": name})).await, &[])? else {
            return Ok(None);
        };
        let document = roxmltree::Document::parse(&answer)
            .map_err(|error| Failure::Recoverable(format!("GetRole answered with bad XML: {error}")))?;
        let Some(role) = document.descendants().find(|node| node.tag_name().name() == "Role") else {
            return Ok(None);
        };
        let mut spec = from_xml(&DESCRIPTOR.spec, role);
        let status = from_xml(&DESCRIPTOR.status, role);
        spec["name"] = json!(name);
        spec["assumeRolePolicyDocument"] =
            json!(decode_document(spec["assumeRolePolicyDocument"].as_str().unwrap_or_default()));
        // The boundary is an object of two fields here and an ARN in the request.
        spec["permissionsBoundary"] =
            json!(texts(&answer, "PermissionsBoundaryArn").into_iter().next().unwrap_or_default());
        let arn = texts(&answer, "Arn").into_iter().next();
        drop(document);
        spec["policies"] = json!(attached(aws, name).await?);
        spec["inlinePolicies"] = Value::Object(inline(aws, name).await?);
        let pages = all_pages(aws, "ListRoleTags", json!({"RoleName": name})).await?;
        let pairs = pages.iter().flat_map(|page| texts(page, "Key").into_iter().zip(texts(page, "Value")));
        spec["tags"] = pairs.map(|(key, value)| json!({"key": key, "value": value})).collect();
        Ok(Some(Observed { spec, status, arn, ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let fields = parse(
            "assumeRolePolicyDocument description maxSessionDuration:i name>RoleName path permissionsBoundary tags[]{key value}",
        );
        aws.query(&IAM, "CreateRole", to_json(&fields, &object.spec, Case::Pascal)).await?;
        Ok(json!({}))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let same = |field: &str| policy::same(&text(&object.spec, field), &text(&observed.spec, field));
        let empty = Map::new();
        let documents = |value: &Value| value["inlinePolicies"].as_object().unwrap_or(&empty).clone();
        let (desired, seen) = (documents(&object.spec), documents(&observed.spec));
        let inline = desired.len() == seen.len()
            && desired.iter().all(|(name, document)| {
                let seen = seen.get(name).and_then(Value::as_str);
                seen.is_some_and(|seen| policy::same(document.as_str().unwrap_or_default(), seen))
            });
        changed.retain(|difference| match difference.field.as_str() {
            "assumeRolePolicyDocument" => !same("assumeRolePolicyDocument"),
            "inlinePolicies" => !inline,
            _ => true,
        });
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let name = object.need("name");
        let list = |value: &Value| -> Vec<String> {
            let items = value["policies"].as_array().into_iter().flatten();
            items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
        };
        if differs(changed, "policies") {
            let (desired, seen) = (list(&object.spec), list(&observed.spec));
            for arn in desired.iter().filter(|arn| !seen.contains(arn)) {
                aws.query(&IAM, "AttachRolePolicy", json!({"RoleName": name, "PolicyArn": arn})).await?;
            }
            for arn in seen.iter().filter(|arn| !desired.contains(arn)) {
                aws.query(&IAM, "DetachRolePolicy", json!({"RoleName": name, "PolicyArn": arn})).await?;
            }
        }
        if differs(changed, "inlinePolicies") {
            let empty = Map::new();
            let desired = object.spec["inlinePolicies"].as_object().unwrap_or(&empty);
            let seen = observed.spec["inlinePolicies"].as_object().unwrap_or(&empty);
            for (policy, document) in desired {
                let parameters = json!({"RoleName": name, "PolicyName": policy, "PolicyDocument": document});
                aws.query(&IAM, "PutRolePolicy", parameters).await?;
            }
            for policy in seen.keys().filter(|policy| !desired.contains_key(*policy)) {
                aws.query(&IAM, "DeleteRolePolicy", json!({"RoleName": name, "PolicyName": policy})).await?;
            }
        }
        if differs(changed, "tags") {
            sync_tags(aws, ("UntagRole", "TagRole"), ("RoleName", name), object, observed).await?;
        }
        if differs(changed, "permissionsBoundary") {
            match object.spec("permissionsBoundary") {
                Some(arn) => {
                    let parameters = json!({"RoleName": name, "PermissionsBoundary": arn});
                    aws.query(&IAM, "PutRolePermissionsBoundary", parameters).await?
                }
                None => aws.query(&IAM, "DeleteRolePermissionsBoundary", json!({"RoleName": name})).await?,
            };
        }
        if differs(changed, "assumeRolePolicyDocument") {
            let document = object.need("assumeRolePolicyDocument");
            let parameters = json!({"RoleName": name, "PolicyDocument": document});
            aws.query(&IAM, "UpdateAssumeRolePolicy", parameters).await?;
        }
        if differs(changed, "description") || differs(changed, "maxSessionDuration") {
            let description = object.spec("description").unwrap_or_default();
            let duration =
                object.spec.get("maxSessionDuration").or_else(|| observed.spec.get("maxSessionDuration"));
            let parameters =
                json!({"RoleName": name, "Description": description, "MaxSessionDuration": duration});
            aws.query(&IAM, "UpdateRole", parameters).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion> {
        let name = object.need("name");
        for arn in observed.spec["policies"].as_array().into_iter().flatten() {
            optional(
                aws.query(&IAM, "DetachRolePolicy", json!({"RoleName": name, "PolicyArn": arn})).await,
                &[],
            )?;
        }
        for policy in observed.spec["inlinePolicies"].as_object().into_iter().flat_map(Map::keys) {
            let parameters = json!({"RoleName": name, "PolicyName": policy});
            optional(aws.query(&IAM, "DeleteRolePolicy", parameters).await, &[])?;
        }
        match optional(aws.query(&IAM, "DeleteRole", json!({"RoleName": name})).await, &[]) {
            Err(failure) if failure.is(&["DeleteConflict"]) => {
                let profiles =
                    all_pages(aws, "ListInstanceProfilesForRole", json!({"RoleName": name})).await?;
                let names: Vec<_> =
                    profiles.iter().flat_map(|page| texts(page, "InstanceProfileName")).collect();
                Err(Failure::Recoverable(match names.is_empty() {
                    true => failure.to_string(),
                    false => format!("the role is in use by instance profiles: {}", names.join(", ")),
                }))
            }
            Err(failure) => Err(failure),
            Ok(_) => Ok(Deletion::Gone),
        }
    }
}
