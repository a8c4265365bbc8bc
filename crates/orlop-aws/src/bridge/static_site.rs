//! StaticSite: pages in a bucket under a host name.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::{
    kind::{Descriptor, Phase, Phases, READY, Workflow},
    records::{Site, clean_site, run_site},
    step::{Cleaned, Step},
    work::{Child, OWNER_TAG, Work, child_name, explain, status},
};
use crate::{
    client::{Result, S3, Session, optional, path, sha256_hex},
    conditions::SYNCED,
    fields::parse,
};

const BUCKET: (&str, &str) = ("s3", "Bucket");
/// Header with the hash of a page's text.
const HASH: &str = "x-amz-meta-sha256";

#[derive(Debug)]
pub(crate) struct StaticSite;

/// Phases of a site.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SitePhase {
    /// A bucket serves its objects to everybody.
    Bucket,
    /// Its objects are the pages.
    Content,
    /// DNS leads to the bucket.
    Dns,
}

impl Phases for SitePhase {
    const ALL: &'static [Self] = &[Self::Bucket, Self::Content, Self::Dns];

    fn names(self) -> Phase {
        let phase = |condition, working, done| Phase { condition, working, pending: None, done };
        match self {
            Self::Bucket => phase("BucketReady", "BUCKET_CREATING", "BUCKET_READY"),
            Self::Content => phase("ContentReady", "CONTENT_WRITING", "CONTENT_READY"),
            Self::Dns => phase("DNSReady", "DNS_CREATING", READY),
        }
    }
}

static DESCRIPTOR: Descriptor = Descriptor {
    kind: "StaticSite",
    plural: "staticsites",
    short_names: &[],
    spec: LazyLock::new(|| parse("domain!= index error pages{} dnsConfig{ttl:i hostedZoneID overwrite:b}")),
    status: LazyLock::new(|| {
        parse(
            "url endpoint pages{} dnsRecordName
             dnsRecord{type value ttl:i hostedZoneID changeID status}",
        )
    }),
    refine_schema: |spec| {
        let properties = &mut spec["properties"];
        properties["index"]["default"] = json!("index.html");
        properties["pages"]["maxProperties"] = json!(64);
        properties["dnsConfig"]["default"] = json!({});
        properties["dnsConfig"]["properties"]["ttl"]["default"] = json!(300);
    },
    children: &[BUCKET],
    references: &[],
    actions: &[
        "s3:GetBucketTagging",
        "s3:ListBucket",
        "s3:DeleteBucket",
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
        "route53:ListHostedZonesByName",
        "route53:GetHostedZone",
        "route53:ListResourceRecordSets",
        "route53:ChangeResourceRecordSets",
        "route53:GetChange",
    ],
    columns: &[("URL", "string", ".status.url")],
};

#[async_trait]
impl Workflow for StaticSite {
    type Phase = SitePhase;

    const DESCRIPTOR: &'static Descriptor = &DESCRIPTOR;

    async fn run_phase(phase: SitePhase, work: &mut Work<'_>) -> Result<Step> {
        match phase {
            SitePhase::Bucket => bucket(work).await,
            SitePhase::Content => content(work).await,
            SitePhase::Dns => {
                let name = bucket_name(work);
                let target = endpoint(&work.aws.region, &name);
                run_site(work, Site { name, target, alias_zone: None, is_stale: Box::new(|_| false) }).await
            }
        }
    }

    async fn clean_phase(phase: SitePhase, work: &mut Work<'_>) -> Result<Cleaned> {
        match phase {
            SitePhase::Bucket => delete_bucket(work).await,
            SitePhase::Content => delete_pages(work).await,
            SitePhase::Dns => {
                let name = bucket_name(work);
                let target = endpoint(&work.aws.region, &name);
                clean_site(work, &name, vec![target]).await
            }
        }
    }
}

/// S3 serves the bucket that has the name of the host.
fn bucket_name(work: &Work<'_>) -> String {
    work.spec("domain").unwrap_or_default().to_lowercase()
}

/// Returns the host of a bucket's site. Older regions have a dash before their name.
fn endpoint(region: &str, bucket: &str) -> String {
    const DASHED: [&str; 9] = [
        "us-east-1",
        "us-west-1",
        "us-west-2",
        "us-gov-west-1",
        "ap-southeast-1",
        "ap-southeast-2",
        "ap-northeast-1",
        "eu-west-1",
        "sa-east-1",
    ];
    let separator = if DASHED.contains(&region) { '-' } else { '.' };
    format!("{bucket}.s3-website{separator}{region}.amazonaws.com")
}

/// Returns the owner of a bucket; `None` if there is no such bucket.
async fn owner(aws: &Session, bucket: &str) -> Result<Option<String>> {
    let read = aws.xml(&S3, "GetBucketTagging", "GET", &path(&[bucket]), &[("tagging", "")], None).await;
    let answer = match read {
        Err(failure) if failure.is(&["NoSuchTagSet"]) => return Ok(Some(String::new())),
        other => optional(other, &[])?,
    };
    let Some(answer) = answer else { return Ok(None) };
    let document = crate::client::parse_xml(&answer)?;
    let tag = document.descendants().filter(|node| node.tag_name().name() == "Tag").find_map(|tag| {
        let text =
            |name: &str| crate::fields::child(tag, name).and_then(|node| node.text()).unwrap_or_default();
        (text("Key") == OWNER_TAG).then(|| text("Value").to_owned())
    });
    Ok(Some(tag.unwrap_or_default()))
}

async fn bucket(work: &mut Work<'_>) -> Result<Step> {
    let bucket = bucket_name(work);
    let name = child_name(&bucket);
    let owner = owner(work.aws, &bucket).await?;
    let existing = work.child(BUCKET, &name).await?;
    if let Some(owner) = &owner
        && existing.is_none()
        && *owner != work.owner
        && !work.may_adopt()
    {
        let text = format!("bucket {bucket} exists and was not made by this object");
        return Ok(Step::refused("BucketConflict", text));
    }
    let statement = json!({"Sid": "PublicRead", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
        "Resource": format!("arn:{}:s3:::{bucket}/*", work.aws.partition)});
    let policy = json!({"Version": "2012-10-17", "Statement": [statement]}).to_string();
    let mut website = json!({"indexDocument": {"suffix": work.spec("index").unwrap_or("index.html")}});
    if let Some(error) = work.spec("error") {
        website["errorDocument"] = json!({"key": error});
    }
    let spec = json!({"name": bucket, "website": website, "policy": policy,
        "tagging": {"tagSet": [{"key": OWNER_TAG, "value": work.owner}]},
        "publicAccessBlock": {"blockPublicACLs": false, "blockPublicPolicy": false, "ignorePublicACLs": false,
            "restrictPublicBuckets": false}});
    let adopt = owner.as_ref().map(|_| json!({"name": bucket}));
    let child = match work.apply_child(BUCKET, &name, adopt, spec).await? {
        Child::Is(child) => child,
        Child::Blocked(step) => return Ok(step),
    };
    let synced = status(&child, SYNCED) == Some("True");
    match owner {
        Some(_) if synced => {
            work.status["endpoint"] = json!(endpoint(&work.aws.region, &bucket));
            work.status["url"] = json!(format!("http://{bucket}/"));
            Ok(Step::done("Ready", "Bucket is ready"))
        }
        None if synced => {
            work.delete_child(BUCKET, &name).await?;
            Ok(Step::wait(1, "Creating", format!("bucket {bucket} is gone and will be created again")))
        }
        _ => {
            let text = format!("Bucket is being created: Bucket {name}{}", explain(&child));
            Ok(Step::wait(15, "Creating", text))
        }
    }
}

/// Pages of `spec`: path and text.
fn pages(work: &Work<'_>) -> Vec<(String, String)> {
    let pages = work.spec_value("pages").and_then(Value::as_object).into_iter().flatten();
    pages.map(|(path, text)| (path.clone(), text.as_str().unwrap_or_default().to_owned())).collect()
}

/// Address of an object: its key's slashes are slashes of the path.
fn object(bucket: &str, key: &str) -> String {
    let segments: Vec<&str> = std::iter::once(bucket).chain(key.split('/')).collect();
    path(&segments)
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

async fn content(work: &mut Work<'_>) -> Result<Step> {
    let (bucket, pages) = (bucket_name(work), pages(work));
    let noted: Map<String, Value> = work.status["pages"].as_object().cloned().unwrap_or_default();
    // Keys are written down before they are there: what a killed controller wrote is deleted in the end.
    if pages.iter().any(|(key, _)| !noted.contains_key(key)) {
        let mut all = noted;
        for (key, _) in &pages {
            all.entry(key.clone()).or_insert(json!(""));
        }
        work.status["pages"] = Value::Object(all);
        return Ok(Step::again("pages are about to be written"));
    }
    let mut written = Map::new();
    for (key, text) in &pages {
        let (address, hash) = (object(&bucket, key), sha256_hex(text.as_bytes()));
        let read =
            work.aws.xml_header(&S3, "HeadObject", ("HEAD", &address, &[]), Vec::new(), None, HASH).await;
        if optional(read, &["NoSuchKey"])?.flatten().as_deref() != Some(&hash) {
            let headers = vec![
                (HASH.to_owned(), hash.clone()),
                ("content-type".to_owned(), content_type(key).to_owned()),
            ];
            work.aws
                .xml_header(&S3, "PutObject", ("PUT", &address, &[]), headers, Some(text.clone()), HASH)
                .await?;
        }
        written.insert(key.clone(), json!(hash));
    }
    for key in noted.keys().filter(|key| !written.contains_key(*key)) {
        delete_page(work, &bucket, key).await?;
    }
    work.status["pages"] = Value::Object(written);
    Ok(Step::done("Ready", format!("{} pages are written", pages.len())))
}

async fn delete_page(work: &Work<'_>, bucket: &str, key: &str) -> Result<()> {
    let deleted = work.aws.xml(&S3, "DeleteObject", "DELETE", &object(bucket, key), &[], None).await;
    optional(deleted, &["NoSuchKey"]).map(drop)
}

async fn delete_pages(work: &mut Work<'_>) -> Result<Cleaned> {
    let bucket = bucket_name(work);
    if owner(work.aws, &bucket).await?.is_some_and(|owner| owner == work.owner) {
        let noted = work.status["pages"].as_object().cloned().unwrap_or_default();
        for key in noted.keys() {
            delete_page(work, &bucket, key).await?;
        }
    }
    Ok(Cleaned::Gone)
}

/// The child goes first: while it exists, ACK may create the bucket again.
async fn delete_bucket(work: &mut Work<'_>) -> Result<Cleaned> {
    let bucket = bucket_name(work);
    let name = child_name(&bucket);
    if !work.delete_child(BUCKET, &name).await? {
        return Ok(Cleaned::wait(1, format!("Bucket {name} is being deleted")));
    }
    if owner(work.aws, &bucket).await?.is_none_or(|owner| owner != work.owner) {
        return Ok(Cleaned::Gone);
    }
    match optional(work.aws.xml(&S3, "DeleteBucket", "DELETE", &path(&[&bucket]), &[], None).await, &[]) {
        Err(failure) if failure.is(&["BucketNotEmpty"]) => {
            Ok(Cleaned::Left(format!("bucket {bucket} has objects that are not pages of this site")))
        }
        other => other.map(|_| Cleaned::Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint;

    #[test]
    fn endpoints_of_older_regions_have_a_dash() {
        assert_eq!(endpoint("eu-west-1", "a.b"), "a.b.s3-website-eu-west-1.amazonaws.com");
        assert_eq!(endpoint("eu-central-1", "a.b"), "a.b.s3-website.eu-central-1.amazonaws.com");
    }
}
