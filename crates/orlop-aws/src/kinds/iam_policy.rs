//! iam Policy.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::iam_role::{all_pages, decode_document, sync_tags, texts};
use crate::{
    client::{Failure, IAM, Result, Session, optional, xml_text},
    fields::{Case, Difference, from_xml, parse, to_json},
    kind::{Deletion, Descriptor, Kind, Object, Observed, Tags, differs},
    policy,
};

#[derive(Debug)]
pub(crate) struct Policy;

static DESCRIPTOR: Descriptor = Descriptor {
    service: &IAM,
    kind: "Policy",
    plural: "policies",
    spec: LazyLock::new(|| parse("description name! path policyDocument! tags~[]{key value}")),
    status: LazyLock::new(|| {
        parse(
            "attachmentCount:i createDate:t defaultVersionID isAttachable:b permissionsBoundaryUsageCount:i policyID
             updateDate:t",
        )
    }),
    adoption: &[("arn", "status.ackResourceMetadata.arn")],
    identity: &["name", "path", "description"],
    references: &[],
    terminal: &["InvalidInput", "MalformedPolicyDocument", "ValidationError"],
    late: &["path"],
    tags: Tags::List("tags"),
    resync: None,
    actions: &[
        "iam:GetPolicy",
        "iam:CreatePolicy",
        "iam:DeletePolicy",
        "iam:GetPolicyVersion",
        "iam:CreatePolicyVersion",
        "iam:DeletePolicyVersion",
        "iam:ListPolicyVersions",
        "iam:TagPolicy",
        "iam:UntagPolicy",
    ],
    columns: &[],
};

/// Maximum number of versions of a policy in IAM.
const VERSIONS_MAX: usize = 5;

/// Returns the ARN: that of status, or the one that the name gives.
fn arn(aws: &Session, object: &Object) -> String {
    object.arn().map_or_else(
        || {
            let path = object.spec("path").unwrap_or("/");
            format!("arn:{}:iam::{}:policy{path}{}", aws.partition, aws.account, object.need("name"))
        },
        str::to_owned,
    )
}

/// Returns versions, oldest first, and the default one.
async fn versions(aws: &Session, arn: &str) -> Result<(Vec<String>, String)> {
    let pages = all_pages(aws, "ListPolicyVersions", json!({"PolicyArn": arn})).await?;
    let mut all = Vec::new();
    let mut default = String::new();
    for page in &pages {
        let ids = texts(page, "VersionId").into_iter().zip(texts(page, "IsDefaultVersion"));
        for (id, is_default) in ids {
            if is_default == "true" {
                default.clone_from(&id);
            }
            all.push(id);
        }
    }
    all.sort_by_key(|id| id.trim_start_matches('v').parse::<u64>().unwrap_or_default());
    Ok((all, default))
}

#[async_trait]
impl Kind for Policy {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    async fn read(&self, aws: &Session, object: &Object) -> Result<Option<Observed>> {
        let arn = arn(aws, object);
        let Some(answer) = optional(aws.query(&IAM, "GetPolicy", json!({"PolicyArn": arn})).await, &[])?
        else {
            return Ok(None);
        };
        let (mut spec, status) = {
            let document = roxmltree::Document::parse(&answer)
                .map_err(|error| Failure::Recoverable(format!("GetPolicy answered with bad XML: {error}")))?;
            let Some(found) = document.descendants().find(|node| node.tag_name().name() == "Policy") else {
                return Ok(None);
            };
            (from_xml(&DESCRIPTOR.spec, found), from_xml(&DESCRIPTOR.status, found))
        };
        spec["name"] = json!(xml_text(&answer, "PolicyName"));
        let version = status["defaultVersionID"].as_str().unwrap_or("v1");
        let parameters = json!({"PolicyArn": arn, "VersionId": version});
        let document = aws.query(&IAM, "GetPolicyVersion", parameters).await?;
        spec["policyDocument"] = json!(decode_document(&xml_text(&document, "Document").unwrap_or_default()));
        Ok(Some(Observed { spec, status, arn: Some(arn), ..Observed::default() }))
    }

    async fn create(&self, aws: &Session, object: &Object) -> Result<Value> {
        let fields = parse("description name>PolicyName path policyDocument tags[]{key value}");
        let answer = aws.query(&IAM, "CreatePolicy", to_json(&fields, &object.spec, Case::Pascal)).await?;
        Ok(json!({"ackResourceMetadata": {"arn": xml_text(&answer, "Arn")}}))
    }

    fn refine(&self, object: &Object, observed: &Observed, changed: &mut Vec<Difference>) {
        let text = |value: &Value| value["policyDocument"].as_str().unwrap_or_default().to_owned();
        changed.retain(|difference| {
            difference.field != "policyDocument" || !policy::same(&text(&object.spec), &text(&observed.spec))
        });
    }

    async fn update(
        &self,
        aws: &Session,
        object: &Object,
        observed: &Observed,
        changed: &[Difference],
    ) -> Result<()> {
        let arn = arn(aws, object);
        if differs(changed, "tags") {
            sync_tags(aws, ("UntagPolicy", "TagPolicy"), ("PolicyArn", &arn), object, observed).await?;
        }
        if differs(changed, "policyDocument") {
            let (all, default) = versions(aws, &arn).await?;
            if all.len() >= VERSIONS_MAX
                && let Some(oldest) = all.iter().find(|id| **id != default)
            {
                aws.query(&IAM, "DeletePolicyVersion", json!({"PolicyArn": arn, "VersionId": oldest}))
                    .await?;
            }
            let document = object.need("policyDocument");
            let parameters = json!({"PolicyArn": arn, "PolicyDocument": document, "SetAsDefault": true});
            aws.query(&IAM, "CreatePolicyVersion", parameters).await?;
        }
        Ok(())
    }

    async fn delete(&self, aws: &Session, object: &Object, observed: &Observed) -> Result<Deletion> {
        let arn = arn(aws, object);
        // IAM refuses this itself; simulators do not.
        if observed.status["attachmentCount"].as_i64().unwrap_or_default() > 0 {
            return Err(Failure::Recoverable(format!("DeleteConflict: {arn} is attached")));
        }
        let (all, default) = versions(aws, &arn).await?;
        for id in all.iter().filter(|id| **id != default) {
            let parameters = json!({"PolicyArn": arn, "VersionId": id});
            optional(aws.query(&IAM, "DeletePolicyVersion", parameters).await, &[])?;
        }
        optional(aws.query(&IAM, "DeletePolicy", json!({"PolicyArn": arn})).await, &[])?;
        Ok(Deletion::Gone)
    }
}
