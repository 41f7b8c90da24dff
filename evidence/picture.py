"""Work on the bytes of a picture: paint over what is secret, mark the target, encode. Runs in the worker process; no
I/O."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from evidence.records import Rect, Target

MEDIA_TYPE = "image/webp"
MASK_COLOUR = (58, 63, 71)
MARK_COLOUR = (214, 0, 110)
_HALO = (255, 255, 255, 235)
_SMOOTH = 4  # marks are drawn this many times larger and scaled down
_STRIP = 30  # CSS pixels


def finish(
    png_base64: str,
    viewport: tuple[float, float],
    offset: tuple[float, float],
    masks: Sequence[Rect],
    target: Target | None,
    note: str,
) -> bytes:
    """A viewport picture as lossless WebP with every mask painted, the target marked and the note in a strip below.

    Rectangles are CSS pixels of the layout viewport; `offset` is where the visible part starts in it, `viewport` its
    size. Masks are opaque, grown by two pixels and rounded outwards, and painted after nothing and before the mark.
    """
    with Image.open(io.BytesIO(base64.b64decode(png_base64))) as opened:
        image = opened.convert("RGB")
    scale_x, scale_y = image.width / viewport[0], image.height / viewport[1]

    def pixels(box: Rect) -> tuple[float, float, float, float]:
        left, top = (box.x - offset[0]) * scale_x, (box.y - offset[1]) * scale_y
        return left, top, left + box.width * scale_x, top + box.height * scale_y

    _paint_masks(image, [pixels(box) for box in masks])
    if target is not None:
        point = target.point
        at = None if point is None else ((point[0] - offset[0]) * scale_x, (point[1] - offset[1]) * scale_y)
        _mark(image, pixels(target.box), at, max(1.0, scale_x))
    if note:
        image = _with_strip(image, note, max(1.0, scale_x))
    out = io.BytesIO()
    image.save(out, "WEBP", lossless=True, method=4, quality=50, exact=True)
    return out.getvalue()


def _paint_masks(image: Image.Image, boxes: Sequence[tuple[float, float, float, float]]) -> None:
    draw = ImageDraw.Draw(image)
    for left, top, right, bottom in boxes:
        draw.rectangle((int(left) - 2, int(top) - 2, int(right) + 2, int(bottom) + 2), fill=MASK_COLOUR)
        if right - left >= 54 and bottom - top >= 12:
            draw.text(
                ((left + right) / 2, (top + bottom) / 2), "masked", fill=(196, 201, 209), anchor="mm",
                font=ImageFont.load_default(size=min(12.0, bottom - top)),
            )  # fmt: skip


def _mark(
    image: Image.Image, box: tuple[float, float, float, float], point: tuple[float, float] | None, scale: float
) -> None:
    """An outline a little outside the control, and a small cross with an open middle at the point, both with a light
    halo."""
    gap, line, halo = 4 * scale, 2.5 * scale, 1.5 * scale
    reach = 11 * scale
    left, top, right, bottom = box[0] - gap, box[1] - gap, box[2] + gap, box[3] + gap
    xs, ys = [left, right], [top, bottom]
    if point is not None:
        xs += [point[0] - reach, point[0] + reach]
        ys += [point[1] - reach, point[1] + reach]
    edge = line + halo + 2
    area = (
        max(0, int(min(xs) - edge)), max(0, int(min(ys) - edge)),
        min(image.width, int(max(xs) + edge) + 1), min(image.height, int(max(ys) + edge) + 1),
    )  # fmt: skip
    if area[2] <= area[0] or area[3] <= area[1]:
        return  # wholly outside the picture
    size = (area[2] - area[0], area[3] - area[1])
    layer = Image.new("RGBA", (size[0] * _SMOOTH, size[1] * _SMOOTH), (*MARK_COLOUR, 0))
    draw = ImageDraw.Draw(layer)

    def at(x: float, y: float) -> tuple[float, float]:
        return (x - area[0]) * _SMOOTH, (y - area[1]) * _SMOOTH

    for grow, width, colour in ((halo, line + 2 * halo, _HALO), (0.0, line, (*MARK_COLOUR, 255))):
        corners = (*at(left - grow, top - grow), *at(right + grow, bottom + grow))
        draw.rounded_rectangle(corners, radius=5 * scale * _SMOOTH, outline=colour, width=round(width * _SMOOTH))
        if point is not None:
            inner = 6 * scale - grow
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                start = at(point[0] + dx * inner, point[1] + dy * inner)
                end = at(point[0] + dx * (reach + grow), point[1] + dy * (reach + grow))
                draw.line((*start, *end), fill=colour, width=round((1.5 * scale + 1.4 * grow) * _SMOOTH))
    smooth = layer.resize(size, Image.Resampling.LANCZOS)
    image.paste(smooth, area[:2], smooth)


def _with_strip(image: Image.Image, note: str, scale: float) -> Image.Image:
    height = round(_STRIP * scale)
    wider = Image.new("RGB", (image.width, image.height + height), MARK_COLOUR)
    wider.paste(image, (0, 0))
    ImageDraw.Draw(wider).text(
        (12 * scale, image.height + height / 2), note, fill=(255, 255, 255), anchor="lm",
        font=ImageFont.load_default(size=14 * scale),
    )  # fmt: skip
    return wider
