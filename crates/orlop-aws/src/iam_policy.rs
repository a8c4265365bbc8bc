//! The least-privilege IAM policy of the kinds that are reconciled.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{bridge, kinds::KINDS, settings::Settings};

/// Actions that make Lambda or S3 act as a role: only for roles given to those services.
const PASS_ROLE: &str = "iam:PassRole";

/// Returns the policy document. `account` scopes it where a service allows that.
pub fn iam_policy(settings: &Settings, account: &str) -> Value {
    let mut by_service: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut passes = false;
    let kinds = KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind));
    let bridge = bridge::KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind));
    let bridge = bridge.flat_map(|kind| kind.descriptor().actions);
    for action in kinds.flat_map(|kind| kind.descriptor().actions).chain(bridge) {
        if *action == PASS_ROLE {
            passes = true;
            continue;
        }
        by_service.entry(action.split(':').next().unwrap_or_default()).or_default().insert(action);
    }
    by_service.entry("sts").or_default().insert("sts:GetCallerIdentity");
    if settings.carm || settings.role_selectors {
        by_service.entry("sts").or_default().insert("sts:AssumeRole");
    }
    let region = if settings.region.is_empty() { "*" } else { &settings.region };
    let mut statements: Vec<Value> = by_service
        .into_iter()
        .map(|(service, actions)| {
            let resource = match service {
                "lambda" => json!(format!("arn:aws:lambda:{region}:{account}:*")),
                "dynamodb" => json!(format!("arn:aws:dynamodb:{region}:{account}:*")),
                "apigateway" => json!(
                    ["apis", "apis/*", "domainnames", "domainnames/*", "tags/*"]
                        .map(|path| format!("arn:aws:apigateway:{region}::/{path}"))
                ),
                _ => json!("*"),
            };
            let sid = format!("{}{}", service[..1].to_uppercase(), service[1..].replace('-', ""));
            json!({"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource})
        })
        .collect();
    if passes {
        statements.push(json!({"Sid": "PassRole", "Effect": "Allow", "Action": PASS_ROLE,
            "Resource": format!("arn:aws:iam::{account}:role/*"),
            "Condition": {"StringEquals": {"iam:PassedToService": ["lambda.amazonaws.com", "s3.amazonaws.com"]}}}));
    }
    json!({"Version": "2012-10-17", "Statement": statements})
}

/// Returns the IAM action of an operation. API Gateway's actions are HTTP verbs, which an operation does not name.
pub fn iam_action(service: &str, operation: &str) -> Option<String> {
    let action = match (service, operation) {
        ("apigatewayv2", _) => return None,
        ("s3", "HeadBucket") => "ListBucket".to_owned(),
        ("s3", "HeadObject") => "GetObject".to_owned(),
        ("s3", "DeleteObject" | "DeleteBucket" | "DeleteBucketPolicy" | "DeleteBucketWebsite") => {
            operation.to_owned()
        }
        ("s3", _) => {
            // Removing a part needs the right to write it.
            let operation = match operation.strip_prefix("Delete") {
                Some(part) => format!("Put{part}"),
                None => operation.to_owned(),
            };
            // Configurations of a list are read by the right to read one.
            let operation = match operation.strip_prefix("List").and_then(|rest| rest.strip_suffix('s')) {
                Some(one) => format!("Get{one}"),
                None => operation,
            };
            operation
                .replace("BucketAnalyticsConfiguration", "AnalyticsConfiguration")
                .replace("BucketIntelligentTieringConfiguration", "IntelligentTieringConfiguration")
                .replace("BucketInventoryConfiguration", "InventoryConfiguration")
                .replace("BucketMetricsConfiguration", "MetricsConfiguration")
                .replace("BucketCors", "BucketCORS")
                .replace("BucketEncryption", "EncryptionConfiguration")
                .replace("BucketLifecycleConfiguration", "LifecycleConfiguration")
                .replace("PutBucketLifecycle", "PutLifecycleConfiguration")
                .replace("BucketNotificationConfiguration", "BucketNotification")
                .replace("BucketReplication", "ReplicationConfiguration")
                .replace("BucketAccelerateConfiguration", "AccelerateConfiguration")
                .replace("PublicAccessBlock", "BucketPublicAccessBlock")
                .replace("ObjectLockConfiguration", "BucketObjectLockConfiguration")
        }
        _ => operation.to_owned(),
    };
    Some(format!("{service}:{action}"))
}
